//! Members of JSON objects in the order of their text.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// Reads the members of an object, those of one name each by itself.
///
/// # Errors
/// An error of a value of another type, or of what is no object: `expected` says what one is.
pub(crate) fn in_order<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
    expected: &'static str,
) -> Result<Vec<(String, T)>, D::Error> {
    struct Members<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = Vec<(String, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            std::iter::from_fn(|| map.next_entry().transpose()).collect()
        }
    }

    from.deserialize_map(Members(expected, PhantomData))
}
