//! Fields of what is read from untrusted files: text is borrowed from the input before it is copied and lists grow item
//! by item, so that no length in a hostile file makes a reader allocate more than the file holds.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a text.
pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    <&str>::deserialize(from).map(str::to_owned)
}

/// Reads a list of texts.
pub fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(list::<_, &str>(from)?.into_iter().map(str::to_owned).collect())
}

/// Reads a list without reserving memory for its declared length.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Items<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                list.push(item);
            }
            Ok(list)
        }
    }
    from.deserialize_seq(Items(PhantomData))
}
