//! Texts of a parquet file that are JSON, as its schema or the library datasets in its metadata marks them.

use std::collections::BTreeMap;

use ::parquet::basic::ConvertedType;
use ::parquet::schema::types::Type;
use serde_json::Value;

/// Texts of a column, or of a struct, that are JSON. A list is marked as its values are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Json {
    #[default]
    None,
    Text,
    /// Of fields of these names.
    Fields(BTreeMap<String, Self>),
}

impl Json {
    /// Reads them of the columns of a schema, and of the features that the library datasets writes into a file's
    /// metadata.
    pub fn of(schema: &Type, features: Option<&str>) -> Self {
        let features = features.and_then(|text| serde_json::from_str::<Value>(text).ok());
        match Self::of_type(schema) {
            Self::None => features.map_or(Self::None, |file| Self::of_feature(&file["info"]["features"])),
            marks => marks,
        }
    }

    fn of_type(field: &Type) -> Self {
        let info = field.get_basic_info();
        let mark = info.converted_type();
        if field.is_primitive() {
            return if mark == ConvertedType::JSON { Self::Text } else { Self::None };
        }
        let fields = field.get_fields();
        // What is in a list or a map is inside a group of its own, except as old writers have it.
        let group = fields.first().filter(|group| group.is_group()).map(|group| group.get_fields());
        match (mark, group) {
            (ConvertedType::LIST, Some([element])) | (ConvertedType::MAP, Some([_, element])) => Self::of_type(element),
            _ => Self::fields(fields.iter().map(|one| (one.name(), Self::of_type(one)))),
        }
    }

    fn of_feature(feature: &Value) -> Self {
        match (feature.get("_type").and_then(Value::as_str), feature) {
            (Some("Json"), _) => Self::Text,
            (Some(_), _) => feature.get("feature").map_or(Self::None, Self::of_feature),
            (None, Value::Array(list)) => list.first().map_or(Self::None, Self::of_feature),
            (None, Value::Object(fields)) => {
                Self::fields(fields.iter().map(|(name, one)| (&**name, Self::of_feature(one))))
            }
            _ => Self::None,
        }
    }

    fn fields<'n>(all: impl Iterator<Item = (&'n str, Self)>) -> Self {
        let marked: BTreeMap<String, Self> =
            all.filter(|(_, one)| *one != Self::None).map(|(name, one)| (name.to_owned(), one)).collect();
        if marked.is_empty() { Self::None } else { Self::Fields(marked) }
    }

    /// The marks of a field.
    pub fn field(&self, name: &str) -> &Self {
        if let Self::Fields(all) = self { all.get(name).unwrap_or(&Self::None) } else { &Self::None }
    }
}

#[cfg(test)]
mod tests {
    use ::parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn marks_are_of_the_schema_or_of_the_metadata() {
        let texts = |mark: &str| {
            let element =
                format!("optional group element {{ optional binary role (UTF8); optional binary content ({mark}); }}");
            let map =
                format!("repeated group key_value {{ required binary key (UTF8); optional binary value ({mark}); }}");
            let fields = format!(
                "optional group messages (LIST) {{ repeated group list {{ {element} }} }} optional group of (MAP) {{ \
                {map} }}"
            );
            parse_message_type(&format!(
                "message m {{ {fields} optional binary tools ({mark}); optional binary id (UTF8); }}"
            ))
        };
        let fields = |all: &[(&str, Json)]| {
            Json::Fields(all.iter().map(|(name, marks)| ((*name).to_owned(), marks.clone())).collect())
        };
        let messages = ("messages", fields(&[("content", Json::Text)]));
        let expected = [messages.clone(), ("of", Json::Text), ("tools", Json::Text)];
        assert_eq!(Json::of(&texts("JSON").unwrap(), None), fields(&expected));
        let text = r#"{"dtype": "string", "_type": "Value"}"#;
        let features = [
            format!(r#"[{{"role": {text}, "content": {{"_type": "Json"}}}}]"#),
            format!(r#"{{"feature": {{"role": {text}, "content": {{"_type": "Json"}}}}, "_type": "List"}}"#),
        ];
        for list in features {
            let metadata = format!(r#"{{"info": {{"features": {{"messages": {list}, "id": {text}}}}}}}"#);
            assert_eq!(Json::of(&texts("UTF8").unwrap(), Some(&metadata)), fields(std::slice::from_ref(&messages)));
        }
        for other in ["{}", "", r#"{"info": {"features": [7]}}"#] {
            assert_eq!(Json::of(&texts("UTF8").unwrap(), Some(other)), Json::None);
        }
    }
}
