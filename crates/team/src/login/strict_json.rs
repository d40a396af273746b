//! JSON in which no object has a name twice. Two readers of such an object can see two different tokens (RFC 8725, 2.4).

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// An object without repeated names, at any depth.
#[derive(Debug, Clone)]
pub(crate) struct StrictObject(pub(crate) Map<String, Value>);

impl StrictObject {
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    /// The text of a member that is there and is one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }
}

impl<'de> Deserialize<'de> for StrictObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match StrictValue::deserialize(deserializer)?.0 {
            Value::Object(object) => Ok(Self(object)),
            // Without the value, which is secret.
            _ => Err(de::Error::custom("not an object")),
        }
    }
}

struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without repeated names")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(StrictValue(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, StrictValue(value))) = members.next_entry::<String, _>()? {
            if object.insert(name, value).is_some() {
                return Err(de::Error::custom("a name is repeated"));
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_each_name_once() {
        let object = StrictObject::parse(br#"{"a": [1, -2, 0.5, null, true, {"b": "c"}], "b": {}}"#).unwrap();
        assert_eq!(Value::Object(object.0).to_string(), r#"{"a":[1,-2,0.5,null,true,{"b":"c"}],"b":{}}"#);
        for json in [r#"{"a": 1, "a": 1}"#, r#"{"b": [{"a": 1, "\u0061": 2}]}"#, "[]", "1", "{", "{} {}"] {
            assert!(StrictObject::parse(json.as_bytes()).is_none(), "{json}");
        }
    }
}
