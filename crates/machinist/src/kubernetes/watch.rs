//! A watch on objects that resumes where the server ended it. Used by the CLI; long-running processes use `cache`.

use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::ServedResource;
use super::request::{ACCEPT_JSON, ApiClient, ApiStatusError, status_code, with_query};

/// The resource version is too old: the list has to be read again.
const GONE: u16 = 410;

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// An object was created or changed.
    Applied(Value),
    /// An object was deleted; this is its last version.
    Deleted(Value),
    /// No change up to this resource version.
    Bookmark(Value),
}

impl WatchEvent {
    /// Parses a line of a watch.
    ///
    /// # Errors
    /// The line is an error of the server, or no event.
    fn parse(line: &[u8]) -> Result<Self> {
        let mut event: Value = serde_json::from_slice(line).context("the watch sent no JSON")?;
        let object = event.get_mut("object").map(Value::take).unwrap_or_default();
        match event.get("type").and_then(Value::as_str) {
            Some("ADDED" | "MODIFIED") => Ok(Self::Applied(object)),
            Some("DELETED") => Ok(Self::Deleted(object)),
            Some("BOOKMARK") => Ok(Self::Bookmark(object)),
            _ => {
                let code = object.get("code").and_then(Value::as_u64);
                let code = code.and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
                Err(ApiStatusError::from_response(code, &serde_json::to_vec(&object)?).into())
            }
        }
    }

    /// The resource version after the event.
    fn resource_version(&self) -> Option<String> {
        let (Self::Applied(object) | Self::Deleted(object) | Self::Bookmark(object)) = self;
        revision(object).map(str::to_owned)
    }
}

/// The resource version of an object, a list or a table.
#[must_use]
pub fn revision(object: &Value) -> Option<&str> {
    let pointers = ["/metadata/resourceVersion", "/rows/0/object/metadata/resourceVersion"];
    let found = |pointer: &&str| object.pointer(pointer).and_then(Value::as_str);
    pointers.iter().filter_map(found).find(|text| !text.is_empty())
}

/// A watch that resumes where it was when the server ends it.
#[derive(Debug)]
pub struct ObjectWatch<'a> {
    client: &'a ApiClient,
    path: String,
    accept: &'a str,
    resource_version: String,
    stream: Option<LineStream>,
}

impl<'a> ObjectWatch<'a> {
    /// Watches the objects of a list from a resource version.
    #[must_use]
    pub fn new(client: &'a ApiClient, path: String, accept: &'a str, revision: &str) -> Self {
        Self { client, path, accept, resource_version: revision.to_owned(), stream: None }
    }

    /// Waits for the next event; none if the resource version is too old and the list has to be read again.
    ///
    /// # Errors
    /// The API server does not respond or refuses.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>> {
        match self.next_event().await {
            Ok(event) => Ok(Some(event)),
            Err(error) if status_code(&error) == Some(GONE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn next_event(&mut self) -> Result<WatchEvent> {
        loop {
            if self.stream.is_none() {
                let query = [
                    ("watch", "true"),
                    ("allowWatchBookmarks", "true"),
                    ("resourceVersion", self.resource_version.as_str()),
                ];
                let body =
                    self.client.open_stream(&with_query(&self.path, &query), self.accept).await?;
                self.stream = Some(LineStream { body, buffer: Vec::new() });
            }
            let Some(stream) = &mut self.stream else { continue };
            let Some(line) = stream.next_line().await? else {
                self.stream = None;
                continue;
            };
            let event = WatchEvent::parse(&line)?;
            if let Some(revision) = event.resource_version() {
                self.resource_version = revision;
            }
            return Ok(event);
        }
    }
}

/// The lines of a stream.
#[derive(Debug)]
struct LineStream {
    body: Body,
    buffer: Vec<u8>,
}

impl LineStream {
    /// The next complete line; none at the end.
    async fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut searched = 0;
        loop {
            let found = self.buffer[searched..].iter().position(|byte| *byte == b'\n');
            if let Some(at) = found {
                let rest = self.buffer.split_off(searched + at + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            searched = self.buffer.len();
            match self.body.frame().await {
                Some(frame) => {
                    let frame = frame.context("the watch broke off")?;
                    if let Some(bytes) = frame.data_ref() {
                        self.buffer.extend_from_slice(bytes);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}

impl ApiClient {
    /// Checks one object, now and after each change, until the check returns something. The check gets none while the
    /// object does not exist.
    ///
    /// # Errors
    /// The API server does not respond or refuses.
    pub async fn until<T>(
        &self,
        resource: &ServedResource,
        namespace: Option<&str>,
        name: &str,
        mut check: impl FnMut(Option<&Value>) -> Option<T>,
    ) -> Result<T> {
        let field = format!("metadata.name={name}");
        let path = with_query(&resource.path(namespace, None), &[("fieldSelector", &field)]);
        loop {
            let list = self.get(&path).await?;
            let object = list.pointer("/items/0");
            if let Some(result) = check(object) {
                return Ok(result);
            }
            let start = revision(&list).unwrap_or_default();
            let mut watch = ObjectWatch::new(self, path.clone(), ACCEPT_JSON, start);
            while let Some(event) = watch.next().await? {
                let object = match &event {
                    WatchEvent::Applied(object) => Some(object),
                    WatchEvent::Deleted(_) => None,
                    WatchEvent::Bookmark(_) => continue,
                };
                if let Some(result) = check(object) {
                    return Ok(result);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events() {
        let read = |value: &Value| WatchEvent::parse(&serde_json::to_vec(value).unwrap());
        let object = json!({"metadata": {"resourceVersion": "7"}});
        for (kind, expected) in [
            ("ADDED", WatchEvent::Applied(object.clone())),
            ("MODIFIED", WatchEvent::Applied(object.clone())),
            ("DELETED", WatchEvent::Deleted(object.clone())),
            ("BOOKMARK", WatchEvent::Bookmark(object.clone())),
        ] {
            let event = read(&json!({"type": kind, "object": object})).unwrap();
            assert_eq!(event, expected);
            assert_eq!(event.resource_version().as_deref(), Some("7"));
        }
        let error = read(&json!({"type": "ERROR", "object": {"code": 410, "message": "old"}}));
        assert_eq!(status_code(&error.unwrap_err()), Some(GONE));
    }

    #[test]
    fn a_table_has_the_resource_version_of_its_row() {
        let row = json!({"object": {"metadata": {"resourceVersion": "9"}}});
        let table = json!({"metadata": {"resourceVersion": ""}, "rows": [row]});
        assert_eq!(revision(&table), Some("9"));
    }
}
