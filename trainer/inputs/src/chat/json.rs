//! JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it: what templates make of tools and of arguments.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Blanks of a level: nobody reads more.
const MOST_INDENT: usize = 64;

/// How it is written.
struct Style {
    /// Blanks of a level, on lines of their own.
    indent: Option<usize>,
    item: String,
    key: String,
    sort_keys: bool,
}

/// The filter `tojson`, with the options that transformers gives it.
pub(super) fn filter(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if let Some(blanks) = indent.filter(|blanks| *blanks > MOST_INDENT) {
        let message = format!("tojson(indent={blanks}): at most {MOST_INDENT}");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        _ => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let mut text = String::new();
    write(value, &Style { indent, item, key, sort_keys: sort_keys == Some(true) }, 0, &mut text)?;
    Ok(if ascii == Some(true) { escaped(&text) } else { text })
}

fn write(value: &Value, style: &Style, level: usize, text: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => text.push_str(&value.to_string()),
        ValueKind::Number => text.push_str(&float(f64::try_from(value.clone())?)),
        ValueKind::String => text.push_str(&quoted(value.as_str().unwrap_or_default())),
        ValueKind::Map => {
            let mut names: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                names.sort();
            }
            let write_one = |name: &Value, text: &mut String| {
                text.push_str(&quoted(&name.to_string()));
                text.push_str(&style.key);
                write(&value.get_item(name)?, style, level + 1, text)
            };
            list(('{', '}'), &names, write_one, style, level, text)?;
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let values: Vec<Value> = value.try_iter()?.collect();
            list(('[', ']'), &values, |one, text| write(one, style, level + 1, text), style, level, text)?;
        }
        kind => {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("{kind} has no form in JSON")));
        }
    }
    Ok(())
}

fn list(
    (open, close): (char, char),
    all: &[Value],
    write: impl Fn(&Value, &mut String) -> Result<(), Error>,
    style: &Style,
    level: usize,
    text: &mut String,
) -> Result<(), Error> {
    let line = |text: &mut String, level: usize| {
        if let Some(indent) = style.indent.filter(|_| !all.is_empty()) {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent * level));
        }
    };
    text.push(open);
    for (index, one) in all.iter().enumerate() {
        if index > 0 {
            text.push_str(&style.item);
        }
        line(text, level + 1);
        write(one, text)?;
    }
    line(text, level);
    text.push(close);
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text has a form in JSON")
}

/// What is not ASCII, escaped.
fn escaped(text: &str) -> String {
    let mut units = [0; 2];
    let escape = |one: char| match one.is_ascii() {
        true => one.to_string(),
        false => one.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
    };
    text.chars().map(escape).collect()
}

/// The shortest digits that read back, as Python's `repr` places them.
fn float(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value < 0.0 { "-" } else { "" };
        return if value.is_nan() { "NaN".to_owned() } else { format!("{sign}Infinity") };
    }
    if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(json: &str, options: &str) -> String {
        let mut environment = minijinja::Environment::new();
        environment.add_filter("tojson", filter);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        let value: Value = serde_json::from_str(json).unwrap();
        environment.render_str(&format!("{{{{ value | tojson{options} }}}}"), minijinja::context! { value }).unwrap()
    }

    /// As Python writes them.
    #[test]
    fn json_is_as_python_writes_it() {
        let json =
            r#"{"b":1,"a":[true,null,"é<&'\"\n\u0001\u007f",1.0,1e16,-2.5e-5,0.1,12345678901234567],"c":{},"d":[]}"#;
        let plain = "{\"b\": 1, \"a\": [true, null, \"é<&'\\\"\\n\\u0001\u{7f}\", 1.0, 1e+16, -2.5e-05, 0.1, \
                     12345678901234567], \"c\": {}, \"d\": []}";
        assert_eq!(written(json, ""), plain);
        assert_eq!(
            written(r#"{"b":[1,{}],"a":"é"}"#, "(indent=2)"),
            "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": \"é\"\n}"
        );
        assert_eq!(
            written(r#"{"b":[1,2],"a":"é"}"#, "(separators=(',', ':'), sort_keys=true)"),
            r#"{"a":"é","b":[1,2]}"#
        );
        assert_eq!(written(r#"["é😀"]"#, "(ensure_ascii=true)"), r#"["\u00e9\ud83d\ude00"]"#);
    }
}
