//! RFC 6901 on raw JSON, so that what is found keeps its bytes.

use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) fn walk<'a>(raw: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    let mut at = raw;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        at = if at.get().starts_with('[') {
            let items: Vec<&RawValue> = serde_json::from_str(at.get()).ok()?;
            *items.get(part.parse::<usize>().ok()?)?
        } else {
            // A name needs no borrowing, so escapes in it do no harm.
            let fields: Vec<(String, &RawValue)> = serde_json::from_str::<Fields>(at.get()).ok()?.0;
            fields.into_iter().find(|(n, _)| *n == part)?.1
        };
    }
    Some(at)
}

struct Fields<'a>(Vec<(String, &'a RawValue)>);
impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> serde::de::Visitor<'de> for V<'a> {
            type Value = Fields<'a>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut m: A) -> Result<Fields<'a>, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = m.next_entry()? {
                    all.push(pair);
                }
                Ok(Fields(all))
            }
        }
        d.deserialize_map(V(std::marker::PhantomData))
    }
}
