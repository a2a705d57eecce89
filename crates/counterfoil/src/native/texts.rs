//! Named texts, as templates and prompts have them, read into a type: a number or a truth value is read from its
//! text, an absent name is `None`.

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::collections::BTreeMap;

type Error = serde::de::value::Error;

/// Reads them.
///
/// # Errors
/// Names the text that doesn't fit and says why.
pub(super) fn read<T: DeserializeOwned>(texts: BTreeMap<String, String>) -> Result<T, String> {
    let entries = texts.into_iter().map(|(name, text)| (name.clone(), Named { name, text }));
    T::deserialize(MapDeserializer::<_, Error>::new(entries)).map_err(|e| e.to_string())
}

struct Named {
    name: String,
    text: String,
}

impl<'de> IntoDeserializer<'de, Error> for Named {
    type Deserializer = Named;
    fn into_deserializer(self) -> Named {
        self
    }
}

impl Named {
    fn parsed<T: std::str::FromStr>(&self, what: &str) -> Result<T, Error> {
        let short: String = self.text.chars().take(80).collect();
        self.text.parse().map_err(|_| Error::custom(format!("`{}`: {short:?} is not {what}", self.name)))
    }
    fn blame(self, e: &Error) -> Error {
        Error::custom(format!("`{}`: {e}", self.name))
    }
}

macro_rules! parsed {
    ($($deserialize:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.parsed::<$type>($what)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Named {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Named { name, text } = self;
        visitor.visit_string::<Error>(text).map_err(|e| Named { name, text: String::new() }.blame(&e))
    }

    parsed! {
        deserialize_bool visit_bool bool, "`true` or `false`";
        deserialize_i8 visit_i8 i8, "a whole number that fits";
        deserialize_i16 visit_i16 i16, "a whole number that fits";
        deserialize_i32 visit_i32 i32, "a whole number that fits";
        deserialize_i64 visit_i64 i64, "a whole number that fits";
        deserialize_u8 visit_u8 u8, "a whole number that fits";
        deserialize_u16 visit_u16 u16, "a whole number that fits";
        deserialize_u32 visit_u32 u32, "a whole number that fits";
        deserialize_u64 visit_u64 u64, "a whole number that fits";
        deserialize_f32 visit_f32 f32, "a number";
        deserialize_f64 visit_f64 f64, "a number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Named { name, text } = self;
        visitor
            .visit_enum(text.into_deserializer())
            .map_err(|e| Named { name, text: String::new() }.blame(&e))
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Page {
        table: String,
        row: u32,
        side: Option<Side>,
        full: Option<bool>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Side {
        Left,
        Right,
    }

    fn texts(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn texts_become_what_the_type_has() {
        let page: Page = read(texts(&[("table", "7"), ("row", "12"), ("side", "right")])).unwrap();
        assert_eq!(page, Page { table: "7".into(), row: 12, side: Some(Side::Right), full: None });
        let map: BTreeMap<String, String> = read(texts(&[("a", "1")])).unwrap();
        assert_eq!(map, texts(&[("a", "1")]));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let wrong = |of: &[(&str, &str)]| read::<Page>(texts(of)).unwrap_err();
        assert_eq!(wrong(&[("table", "t"), ("row", "-1")]), "`row`: \"-1\" is not a whole number that fits");
        assert_eq!(wrong(&[("row", "1")]), "missing field `table`");
        let e = wrong(&[("table", "t"), ("row", "1"), ("side", "top")]);
        assert!(e.starts_with("`side`: ") && e.contains("left"), "{e}");
    }
}
