//! Rows of `.csv` files, as RFC 4180 has them: a line of column names, and texts.

use serde_json::{Map, Value};

use super::jsonl;
use super::rows::{Columns, Content, Kind, no_column, no_field};

/// Chooses the columns to read of a file whose first line this is.
pub(super) fn columns(line: &str, field: Option<&str>) -> Result<Columns, String> {
    let names = cells(line)?;
    if let Some(name) = (1..names.len()).find_map(|at| names[..at].contains(&names[at]).then_some(&names[at])) {
        return Err(format!("two columns `{name}`: leave one out"));
    }
    let has = |name: &str| names.iter().any(|column| column == name);
    let kind = match field {
        Some(field) if has(field) => Kind::Text,
        Some(field) => return Err(no_field(field, &names)),
        None => Kind::of(has).ok_or_else(|| no_column(&names))?,
    };
    if kind.is_chat() || matches!(kind, Kind::Labeled | Kind::Ids) {
        return Err(format!("rows of {kind} in a table of texts: give them as .jsonl or .parquet"));
    }
    Ok(Columns { header: names.clone(), ..Columns::new(kind, field, names) })
}

/// A row of a file, read as the line of a `.jsonl` file that it stands for.
pub(super) fn row(line: &str, columns: &Columns) -> Result<Content, String> {
    jsonl::row(&object(line, columns)?, columns)
}

/// The line of a `.jsonl` file that a row stands for.
pub(super) fn object(line: &str, columns: &Columns) -> Result<String, String> {
    let (cells, names) = (cells(line)?, &columns.header);
    if cells.len() != names.len() {
        let (cells, names) = (cells.len(), names.len());
        return Err(format!(
            "{cells} cells under {names} columns: write a cell with a comma or a line break in quotes"
        ));
    }
    let object: Map<String, Value> = names.iter().cloned().zip(cells.into_iter().map(Value::String)).collect();
    Ok(Value::Object(object).to_string())
}

/// The cells of a line.
fn cells(line: &str) -> Result<Vec<String>, String> {
    let wrong = |what: &str| format!("{what}: a cell with a quote is written in quotes, and its own quotes twice");
    let (mut cells, mut rest) = (Vec::new(), line);
    loop {
        let mut cell = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (text, behind) = quoted.split_once('"').ok_or_else(|| wrong("a quote without its end"))?;
                cell += text;
                rest = behind;
                let Some(more) = behind.strip_prefix('"') else { break };
                cell.push('"');
                quoted = more;
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            cell += &rest[..end];
            rest = &rest[end..];
            if cell.contains(['"', '\r', '\n']) {
                return Err(wrong("a quote or a line break inside a cell without quotes"));
            }
        }
        cells.push(cell);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(cells),
            None => return Err(wrong("text behind the quotes of a cell")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jsonl::Lines;
    use super::*;

    /// The rows of a table, or what is wrong, each with its line.
    fn read(table: &'static str, field: Option<&str>) -> Vec<String> {
        let mut lines = Lines::new(Box::new(table.as_bytes()), true);
        let mut next = || lines.next().unwrap().map(|(number, line)| (number, String::from_utf8(line).unwrap()));
        let columns = match columns(&next().unwrap().1, field) {
            Ok(columns) => columns,
            Err(reason) => return vec![reason],
        };
        let said = |(number, line): (u64, String)| match row(&line, &columns) {
            Ok(content) => format!("{number}: {content:?}"),
            Err(reason) => format!("{number}: {reason}"),
        };
        std::iter::from_fn(next).map(said).collect()
    }

    #[test]
    fn a_table_is_read_as_rfc_4180_has_it() {
        let table = "\u{FEFF}id,text\r\n1,\"a, \"\"b\"\"\r\n\r\nc\"\r\n\r\n2, d \r\n3,\"\"\r\n\"4\",NA";
        let texts = ["a, \"b\"\r\n\r\nc", " d ", "", "NA"];
        let expected: Vec<String> = [2, 6, 7, 8]
            .iter()
            .zip(texts)
            .map(|(line, text)| format!("{line}: {:?}", Content::Text(text.into())))
            .collect();
        assert_eq!(read(table, None), expected);
        assert_eq!(read("a,text\nx,y\n", Some("a")), ["2: Text(\"x\")"]);
        let row = read("output,instruction\nA,B\n", None).concat();
        assert!(row.contains("Instruction:\\nB\\n\\n") && row.contains("Text(\"A\")"), "{row}");
    }

    #[test]
    fn a_table_that_other_readers_read_otherwise_is_refused() {
        let rows = [
            "text,n\n5\" pipe,1\n",
            "text,n\n\"a\" b,2\n",
            "text,n\na,b,3\n",
            "text,n\na\ra,4\n",
            "text,n\n\n\"open,5\n\n\n",
        ];
        let headers = ["messages,text\n", "text,text\n", "words\n", "input_ids\n"];
        let said = rows.into_iter().chain(headers).flat_map(|table| read(table, None));
        insta::assert_snapshot!(said.collect::<Vec<_>>().join("\n"));
    }
}
