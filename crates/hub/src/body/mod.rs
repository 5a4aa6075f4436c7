//! Request bodies: size limits, memory budgets, decoding by media type, duplicate fields.
//!
//! Called by the router before a handler runs. `body_checks` compares the result with the request.

mod budget;
mod protobuf;

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::auth::UserInfo;
use crate::object_limits::{MAX_DEPTH, MAX_FINDINGS, MAX_KEY_BYTES, MAX_OBJECT_BYTES, shorten};
use crate::status::ApiError;
use budget::{BodyBudget, BodyReservation};

/// The largest accepted body.
pub(crate) const MAX_BODY_BYTES: usize = MAX_OBJECT_BYTES;
/// A body must arrive within this time.
const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The media types of objects. Protobuf is accepted only for built-in kinds.
const OBJECT_TYPES: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// A body that is too large is still read and discarded up to here, so that the client sees why.
const MAX_DISCARDED_BYTES: usize = 32 << 20;

/// How much of a body is discarded before a request is refused without it, and how long that may take.
const MAX_REFUSED_BYTES: usize = 256 << 10;
const REFUSED_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a body that nobody needs, within limits. On HTTP/2 a client that is refused before it has sent its body sees a
/// cancelled stream instead of the reason.
pub(crate) async fn discard(mut body: Body) {
    let read = async {
        let mut size = 0;
        while let Some(Ok(frame)) = body.frame().await {
            size += frame.data_ref().map_or(0, Bytes::len);
            if size > MAX_REFUSED_BYTES {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(REFUSED_READ_TIMEOUT, read).await; // it is refused all the same
}

/// A body and the memory that it holds.
#[derive(Debug, Default)]
pub(crate) struct BufferedBody {
    bytes: Bytes,
    _reservation: Option<BodyReservation>,
}

impl std::ops::Deref for BufferedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads bodies within the memory budgets.
#[derive(Debug, Default)]
pub(crate) struct BodyReader {
    budget: BodyBudget,
}

impl BodyReader {
    /// Reads a body of a user to its end, and reserves the memory to decode it.
    pub(crate) async fn read(
        &self,
        user: &UserInfo,
        content_type: Option<&str>,
        body: Body,
    ) -> Result<BufferedBody, ApiError> {
        let mut reservation = self.budget.open(user);
        let collected = tokio::time::timeout(BODY_READ_TIMEOUT, collect(&mut reservation, body));
        let bytes = match collected.await {
            Ok(bytes) => bytes?,
            Err(_) => return Err(ApiError::bad_request("timed out reading the request body")),
        };
        reservation.grow_to(budget::decoded_bytes(content_type, &bytes))?;
        Ok(BufferedBody { bytes, _reservation: Some(reservation) })
    }
}

async fn collect(reservation: &mut BodyReservation, mut body: Body) -> Result<Bytes, ApiError> {
    let mut parts: Vec<Bytes> = Vec::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let unreadable =
            |error| ApiError::bad_request(format!("cannot read the request body: {error}"));
        let Ok(data) = frame.map_err(unreadable)?.into_data() else { continue };
        size += data.len();
        if size > MAX_DISCARDED_BYTES {
            return Err(ApiError::too_large(MAX_BODY_BYTES));
        }
        if size > MAX_BODY_BYTES {
            parts = Vec::new();
            reservation.clear();
            continue;
        }
        reservation.grow_to(size)?;
        parts.push(data);
    }
    if size > MAX_BODY_BYTES {
        return Err(ApiError::too_large(MAX_BODY_BYTES));
    }
    Ok(if parts.len() == 1 { parts.swap_remove(0) } else { parts.concat().into() })
}

/// A decoded request body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecodedObject {
    /// The object.
    pub(crate) value: Value,
    /// Fields that occurred twice. The last value counts.
    pub(crate) duplicates: Vec<String>,
}

/// Why a body cannot be decoded. The texts are those of a Kubernetes API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(#[from] serde_json::Error),
    #[error("yaml: {0}")]
    Yaml(String),
    #[error("unsupported media type")]
    UnsupportedMediaType,
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Json(_) | DecodeError::Yaml(_) => Self::bad_request(error.to_string()),
            DecodeError::UnsupportedMediaType => Self::unsupported_media_type(OBJECT_TYPES),
        }
    }
}

/// Decodes an object by its media type.
pub(crate) fn decode(
    content_type: Option<&str>,
    body: &[u8],
) -> Result<DecodedObject, DecodeError> {
    match media_type(content_type) {
        "" | "application/json" => Ok(decode_json(body)?),
        "application/yaml" => decode_yaml(body),
        "application/vnd.kubernetes.protobuf" => match protobuf::decode(body) {
            Some(value) => Ok(DecodedObject { value, duplicates: Vec::new() }),
            None => Err(DecodeError::UnsupportedMediaType),
        },
        _ => Err(DecodeError::UnsupportedMediaType),
    }
}

/// The media type without its parameters.
pub(crate) fn media_type(content_type: Option<&str>) -> &str {
    content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// Decodes JSON and records duplicate fields.
pub(crate) fn decode_json(body: &[u8]) -> Result<DecodedObject, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let mut state = DecodeState::default();
    let value = ValueSeed(&mut state).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(DecodedObject { value, duplicates: state.duplicates })
}

/// Decodes an apply patch: YAML, which JSON is too. Only JSON may have a field twice.
pub(crate) fn decode_apply_patch(body: &[u8]) -> Result<DecodedObject, DecodeError> {
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => decode_json(body).or_else(|_| decode_yaml(body)),
        _ => decode_yaml(body),
    }
}

fn decode_yaml(body: &[u8]) -> Result<DecodedObject, DecodeError> {
    let text = std::str::from_utf8(body).map_err(|error| DecodeError::Yaml(error.to_string()))?;
    let mut options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    // Manifests rarely use aliases; "billion laughs" documents consist of them.
    options.alias_limits.max_total_replayed_events = 50_000;
    let mut state = DecodeState::default();
    let decoded = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        ValueSeed(&mut state).deserialize(yaml)
    });
    let mut value = decoded.map_err(|error| {
        let text = error.to_string();
        // It may repeat a value of megabytes.
        DecodeError::Yaml(shorten(text.lines().next().unwrap_or_default()))
    })?;
    normalize_whole_floats(&mut value);
    Ok(DecodedObject { value, duplicates: Vec::new() })
}

/// Turns whole floats into integers, as a client does that converts YAML to JSON.
fn normalize_whole_floats(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < 9e15 {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "checked to be whole and small"
                )]
                let whole = float as i64;
                *number = Number::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_whole_floats),
        Value::Object(fields) => fields.values_mut().for_each(normalize_whole_floats),
        _ => {}
    }
}

/// The current path of the decoder, and the duplicates so far.
#[derive(Default)]
struct DecodeState {
    path: Vec<String>,
    duplicates: Vec<String>,
    /// Bytes of all strings and field names. Aliases in YAML repeat them without adding to the body.
    text_bytes: usize,
}

impl DecodeState {
    /// Ends the decoder where the strings alone are larger than an object may be.
    fn count_text<E: serde::de::Error>(&mut self, text: &str) -> Result<(), E> {
        self.text_bytes += text.len();
        if self.text_bytes <= MAX_OBJECT_BYTES {
            return Ok(());
        }
        Err(E::custom(format!(
            "its texts have more than {MAX_OBJECT_BYTES} bytes together: use fewer aliases, or split it"
        )))
    }

    /// Ends the recursion of the decoder at the depth that objects may have.
    fn check_depth<E: serde::de::Error>(&self) -> Result<(), E> {
        if self.path.len() < MAX_DEPTH {
            return Ok(());
        }
        let place =
            self.path.iter().take(5).map(|part| shorten(part)).collect::<Vec<_>>().join(".");
        Err(E::custom(format!(
            "it is nested deeper than {MAX_DEPTH} levels below {place:?}: flatten it"
        )))
    }

    fn record_duplicate(&mut self) {
        if self.duplicates.len() < MAX_FINDINGS {
            self.duplicates.push(self.current_path());
        }
    }

    fn current_path(&self) -> String {
        let mut name = String::new();
        for part in &self.path {
            if shorten(&name) != name {
                break;
            }
            if !part.starts_with('[') && !name.is_empty() {
                name.push('.');
            }
            name.push_str(part);
        }
        shorten(&name)
    }
}

struct ValueSeed<'a>(&'a mut DecodeState);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
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

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.count_text(value)?;
        Ok(value.into())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.0.count_text(&value)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.0.check_depth()?;
        let mut list = Vec::new();
        loop {
            self.0.path.push(format!("[{}]", list.len()));
            let item = items.next_element_seed(ValueSeed(self.0))?;
            self.0.path.pop();
            match item {
                Some(item) => list.push(item),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        self.0.check_depth()?;
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if key.len() > MAX_KEY_BYTES {
                return Err(serde::de::Error::custom(format!(
                    "the field name {:?} has {} bytes, more than {MAX_KEY_BYTES}: shorten it",
                    shorten(&key),
                    key.len()
                )));
            }
            self.0.count_text(&key)?;
            self.0.path.push(key.clone());
            if map.contains_key(&key) {
                self.0.record_duplicate();
            }
            let value = fields.next_value_seed(ValueSeed(self.0))?;
            self.0.path.pop();
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn media_types() {
        let expected = json!({"a": 420, "b": [1.5, true, null]});
        let text = b"a: 0644\nb: [1.5, true, null]\n";
        assert_eq!(decode(Some("application/yaml"), text).unwrap().value, expected);
        let text = br#"{"a":420,"b":[1.5,true,null]}"#;
        assert_eq!(decode(Some("application/json; charset=utf-8"), text).unwrap().value, expected);
        assert_eq!(decode(None, text).unwrap().value, expected);
        for (form, code) in [("application/vnd.kubernetes.protobuf", 415), ("text/plain", 415)] {
            assert_eq!(ApiError::from(decode(Some(form), text).unwrap_err()).code, code);
        }
        for text in ["", "{", "{}}", "{\"a\":}"] {
            let error = ApiError::from(decode(None, text.as_bytes()).unwrap_err());
            assert_eq!(error.code, 400, "{text}");
        }
        assert!(decode(None, "[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn duplicate_fields_are_reported() {
        let sent = decode_json(br#"{"a":1,"b":[{"c":1,"c":2}],"a":3}"#).unwrap();
        assert_eq!(sent.value, json!({"a": 3, "b": [{"c": 2}]}));
        assert_eq!(sent.duplicates, ["b[0].c", "a"]);
    }

    #[test]
    fn aliases_do_not_multiply_a_text() {
        let text = format!("a: &x \"{}\"\nb: [{}]\n", "A".repeat(64_000), "*x,".repeat(900));
        let error = decode(Some("application/yaml"), text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("use fewer aliases"), "{error}");
    }

    #[test]
    fn errors_of_yaml_are_short() {
        let text = format!("a: {}", "9".repeat(100_000));
        let error = decode(Some("application/yaml"), text.as_bytes()).unwrap_err().to_string();
        assert!(error.len() < 1000 && error.contains("non-finite"), "{error}");
    }

    async fn read(user: &UserInfo, body: Vec<u8>) -> Result<BufferedBody, ApiError> {
        BodyReader::default().read(user, None, Body::from(body)).await
    }

    #[tokio::test]
    async fn a_large_body_is_rejected() {
        let error = read(&UserInfo::admin(), vec![b' '; MAX_BODY_BYTES + 1]).await.unwrap_err();
        assert_eq!((error.code, error.reason), (413, "RequestEntityTooLarge"));
    }

    /// It would take 300 MB when decoded.
    #[tokio::test]
    async fn a_body_of_tiny_objects_is_refused_before_it_is_decoded() {
        let body = format!("[{}0]", "{\"\":0},".repeat(440_000)).into_bytes();
        let error = read(&UserInfo::node("a"), body.clone()).await.unwrap_err();
        assert_eq!(error.code, 413);
        assert!(error.message.contains("16 MiB"), "{}", error.message);
        assert!(read(&UserInfo::admin(), body).await.is_ok());
    }
}
