//! Content negotiation: chooses the form and encoding of a response from the `Accept` header. Pure.

use crate::status::ApiError;

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ResponseForm {
    /// The objects themselves.
    #[default]
    Object,
    /// A server-side table.
    Table,
    /// Only the metadata of the objects.
    PartialMetadata,
    /// The aggregated discovery document.
    AggregatedDiscovery,
}

/// The encoding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ResponseEncoding {
    /// JSON.
    #[default]
    Json,
    /// YAML.
    Yaml,
}

/// The negotiated form and encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AcceptedFormat {
    /// The form.
    pub(super) form: ResponseForm,
    /// The writing.
    pub(super) encoding: ResponseEncoding,
}

/// The media types in the 406 message of kube-apiserver, which has no protobuf for CRDs either.
pub(super) const SUPPORTED_TYPES: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
/// The same for objects of built-in kinds.
const OBJECT_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
/// The same for watches.
const WATCH_TYPES: &[&str] =
    &["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// Why nothing that a client accepts is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAcceptable {
    /// No accepted media type is known.
    MediaType,
    /// One is, but not in the accepted form.
    Form,
}

impl NotAcceptable {
    /// The error, with the text of kube-apiserver, which depends on the kind.
    pub(super) fn to_error(self, is_built_in: bool) -> ApiError {
        match self {
            Self::MediaType if is_built_in => ApiError::no_representation(OBJECT_TYPES),
            _ => ApiError::not_acceptable(SUPPORTED_TYPES),
        }
    }
}

/// Checks the format of a watch.
///
/// # Errors
/// 406: events are lines of JSON.
pub(super) fn check_watch(accept: AcceptedFormat) -> Result<(), ApiError> {
    match accept.encoding {
        ResponseEncoding::Json => Ok(()),
        ResponseEncoding::Yaml => Err(ApiError::not_acceptable(WATCH_TYPES)),
    }
}

/// Chooses the best accepted media type. The default is JSON.
///
/// # Errors
/// Nothing that the client accepts is offered.
pub(super) fn negotiate(header: Option<&str>) -> Result<AcceptedFormat, NotAcceptable> {
    let Some(header) = header.filter(|text| !text.trim().is_empty()) else {
        return Ok(AcceptedFormat::default());
    };
    let mut ranges: Vec<MediaRange<'_>> = header.split(',').map(MediaRange::parse).collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.quality));
    ranges.retain(|range| range.quality > 0);
    let accepted = ranges.iter().find_map(MediaRange::accept);
    accepted.ok_or_else(|| match ranges.iter().any(|range| range.encoding().is_some()) {
        true => NotAcceptable::Form,
        false => NotAcceptable::MediaType,
    })
}

/// Chooses one of the offered media types, as for a document that is not an object. The first is the default.
///
/// # Errors
/// 406: nothing that the client accepts is offered.
pub(super) fn choose<'a>(header: Option<&str>, offered: &[&'a str]) -> Result<&'a str, ApiError> {
    let header = header.filter(|text| !text.trim().is_empty()).unwrap_or("*/*");
    let mut ranges: Vec<MediaRange<'_>> = header.split(',').map(MediaRange::parse).collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.quality));
    let accepted = ranges.iter().filter(|range| range.quality > 0);
    accepted
        .flat_map(|range| offered.iter().filter(|offer| range.covers(offer)))
        .next()
        .copied()
        .ok_or_else(|| ApiError::not_acceptable(offered))
}

struct MediaRange<'a> {
    media_type: &'a str,
    kind: &'a str,
    group: &'a str,
    version: &'a str,
    /// In thousandths.
    quality: u16,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let mut range = Self { media_type, kind: "", group: "", version: "", quality: 1000 };
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name.trim() {
                "as" => range.kind = value.trim(),
                "g" => range.group = value.trim(),
                "v" => range.version = value.trim(),
                "q" => range.quality = quality(value.trim()),
                _ => {}
            }
        }
        range
    }

    /// Whether a media type is in the range.
    fn covers(&self, media_type: &str) -> bool {
        let is_type = |prefix: &str| media_type.split('/').next() == Some(prefix);
        self.media_type == "*/*"
            || self.media_type == media_type
            || self.media_type.strip_suffix("/*").is_some_and(is_type)
    }

    fn encoding(&self) -> Option<ResponseEncoding> {
        match self.media_type {
            "application/json" | "application/*" | "*/*" => Some(ResponseEncoding::Json),
            "application/yaml" => Some(ResponseEncoding::Yaml),
            _ => None,
        }
    }

    fn accept(&self) -> Option<AcceptedFormat> {
        let encoding = self.encoding()?;
        let form = match (self.kind, self.group, self.version) {
            ("", _, _) => ResponseForm::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => ResponseForm::Table,
            (
                "PartialObjectMetadata" | "PartialObjectMetadataList",
                "meta.k8s.io",
                "v1" | "v1beta1",
            ) => ResponseForm::PartialMetadata,
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                ResponseForm::AggregatedDiscovery
            }
            _ => return None,
        };
        Some(AcceptedFormat { form, encoding })
    }
}

/// Parses `0.5` into thousandths.
fn quality(text: &str) -> u16 {
    let value: f32 = text.parse().unwrap_or(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 1000"
    )]
    let thousandths = (value.clamp(0.0, 1.0) * 1000.0) as u16;
    thousandths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_in_the_accepted_type() {
        let offered = ["application/json", "application/x+protobuf"];
        for (header, expected) in [
            (None, Some("application/json")),
            (Some("*/*"), Some("application/json")),
            (Some("application/*"), Some("application/json")),
            (Some("application/x+protobuf"), Some("application/x+protobuf")),
            (
                Some("application/json;q=0.1, application/x+protobuf"),
                Some("application/x+protobuf"),
            ),
            (Some("text/html, application/x+protobuf;q=0.1"), Some("application/x+protobuf")),
            (Some("text/html"), None),
            (Some("application/json;q=0"), None),
        ] {
            assert_eq!(choose(header, &offered).ok(), expected, "{header:?}");
        }
    }

    #[test]
    fn accept_headers() {
        let json = |form| AcceptedFormat { form, encoding: ResponseEncoding::Json };
        let table = [
            (None, json(ResponseForm::Object)),
            (Some(""), json(ResponseForm::Object)),
            (Some("*/*"), json(ResponseForm::Object)),
            (Some("application/json, */*"), json(ResponseForm::Object)),
            (
                Some("application/vnd.kubernetes.protobuf,application/json"),
                json(ResponseForm::Object),
            ),
            (
                Some(
                    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                ),
                json(ResponseForm::Table),
            ),
            (
                Some("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
                json(ResponseForm::PartialMetadata),
            ),
            (
                Some(
                    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                ),
                json(ResponseForm::AggregatedDiscovery),
            ),
            (
                Some("application/json;as=Nothing;g=a;v=b,application/json"),
                json(ResponseForm::Object),
            ),
            (
                Some("application/json;q=0.2,application/yaml;q=0.9"),
                AcceptedFormat { form: ResponseForm::Object, encoding: ResponseEncoding::Yaml },
            ),
        ];
        for (header, expected) in table {
            assert_eq!(negotiate(header).unwrap(), expected, "{header:?}");
        }
        for header in ["application/vnd.kubernetes.protobuf", "text/html", "application/json;q=0"] {
            assert_eq!(negotiate(Some(header)), Err(NotAcceptable::MediaType), "{header}");
        }
        let odd = negotiate(Some("text/html, application/json;as=Foo;v=v1;g=meta.k8s.io"));
        assert_eq!(odd, Err(NotAcceptable::Form));
    }
}
