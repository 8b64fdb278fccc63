//! Deserializers that borrow from the text and are bounded.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use tautline_core::nodes::NodeSet;

use super::error::WireError;

/// The values of an object's fields, which are looked up case-insensitively.
pub(super) struct Fields<'a, const N: usize>(pub [Option<&'a RawValue>; N]);

pub(super) fn fields<'a, const N: usize>(
    kind: &'static str,
    json: &'a str,
    names: [&'static str; N],
) -> Result<Fields<'a, N>, WireError> {
    struct Keys<'a, const N: usize>([&'static str; N], PhantomData<&'a ()>);
    impl<'de, const N: usize> Visitor<'de> for Keys<'de, N> {
        type Value = Fields<'de, N>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut values = [None; N];
            while let Some(Name(key)) = map.next_key()? {
                match self
                    .0
                    .iter()
                    .position(|name| name.eq_ignore_ascii_case(&key))
                {
                    Some(i) => values[i] = map.next_value::<Option<&'de RawValue>>()?,
                    None => _ = map.next_value::<IgnoredAny>()?,
                }
            }
            Ok(Fields(values))
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = deserializer
        .deserialize_map(Keys(names, PhantomData))
        .and_then(|fields| deserializer.end().map(|()| fields));
    read.map_err(|error| WireError::Json { kind, error })
}

/// A string, borrowed if the JSON has no escapes.
#[derive(Deserialize)]
pub(super) struct Name<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// The node names, read up to one above the limit.
pub(super) struct NodeNames {
    pub set: NodeSet,
    pub max: usize,
}

impl<'de> Visitor<'de> for NodeNames {
    type Value = NodeSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of node names")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<NodeSet, A::Error> {
        while let Some(Name(name)) = seq.next_element()? {
            self.set.insert(&name);
            if self.set.len() > self.max {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(self.set)
    }
}

/// Reads lists and objects of raw values up to one value above the limit, since a value's text may
/// be shorter than its memory.
pub(super) struct Bounded(pub usize);

impl<'de> Visitor<'de> for Bounded {
    type Value = Vec<(Cow<'de, str>, Option<&'de RawValue>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or an object")
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push((Cow::Borrowed(""), Some(value)));
            if values.len() > self.0 {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(values)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some((Name(key), value)) = map.next_entry()? {
            values.push((key, value));
            if values.len() > self.0 {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                break;
            }
        }
        Ok(values)
    }
}

/// Reads a list, up to one value above `max`.
pub(super) fn list(raw: &RawValue, max: usize) -> Result<Vec<&RawValue>, serde_json::Error> {
    let values = serde_json::Deserializer::from_str(raw.get()).deserialize_seq(Bounded(max))?;
    Ok(values.into_iter().filter_map(|(_, value)| value).collect())
}
