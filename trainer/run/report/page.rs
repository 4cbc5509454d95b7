//! A page of HTML, and the tables in it.

use precast_system::terminal::visible;
use serde_json::Value;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2024; --faint: #8b9198; --line: #dfe3e7; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --faint: #8b9198; --line: #33383d; --paper: #15181b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: \
2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 2rem 0 .3rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 11px; }
.grid { stroke: var(--line); } table { border-collapse: collapse; } td { padding: .1rem 1.2rem .1rem 0; \
vertical-align: top; }
td:first-child { color: var(--faint); } td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.samples td { white-space: pre-wrap; padding-bottom: .6rem; }
.wide { overflow-x: auto; } .wide svg { min-width: 860px; }
@media (max-width: 40rem) { svg { overflow: visible; } :not(.wide) > svg text { font-size: 20px; } td { \
padding-right: .5rem; } }
";

/// A whole page: it needs no other file.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <h1>{title}</h1>{body}</body></html>\n"
    )
}

/// Text as it stands in HTML.
pub(super) fn escaped(text: &str) -> String {
    visible(text).replace('&', "&amp;").replace('<', "&lt;")
}

/// Rows of a name and a value.
pub(crate) fn table(rows: &[(String, String)]) -> String {
    let row =
        |(name, value): &(String, String)| format!("<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value));
    let rows: String = rows.iter().map(row).collect();
    format!("<table>{rows}</table>")
}

/// A JSON tree as rows of dotted names.
pub(crate) fn flatten(prefix: &str, value: &Value) -> Vec<(String, String)> {
    let below = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Object(map) => map.iter().flat_map(|(name, value)| flatten(&below(name), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().flat_map(|(index, value)| flatten(&below(&index.to_string()), value)).collect()
        }
        Value::String(text) => vec![(prefix.to_owned(), text.clone())],
        other => vec![(prefix.to_owned(), other.to_string())],
    }
}
