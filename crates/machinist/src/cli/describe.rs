//! `machinist describe`: everything about an object, for people.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::live::report::report;
use super::live::session::{Session, SessionArgs, Target};
use super::live::words::Words;
use super::live::{self, usage};
use super::{Outcome, output};
use crate::home::Resource;
use crate::home::request::{JSON, with};

/// Show everything about objects: metadata, spec, status, conditions and events
///
/// Long contents are shortened; of secrets only the size is shown. `machinist get -o yaml` shows
/// objects whole.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist describe mcp worker")]
pub(super) struct Describe {
    /// A kind and names (mcp worker), or objects (mcp/worker node/a); a kind alone is all of it
    #[arg(value_name = "TYPE NAME", required = true)]
    words: Vec<String>,

    /// Only those with these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,

    #[command(flatten)]
    session: SessionArgs,
}

impl Describe {
    pub(super) fn run(&self) -> Result<Outcome> {
        let words = Words::parse(&self.words)?;
        let is_named = !matches!(&words, Words::Kinds(_, names) if names.is_empty());
        if is_named && self.selector.is_some() {
            return Err(usage("give either names or a selector"));
        }
        live::run(async {
            let session = self.session.open().await?;
            let (mut is_first, mut outcome) = (true, Outcome::Done);
            for object in self.objects(&session, words).await? {
                let shown = match object {
                    Ok((resource, object)) => show(&session, resource, object, is_first).await,
                    Err(error) => Err(error),
                };
                match shown {
                    Ok(()) => is_first = false,
                    Err(error) => {
                        output::error(&format!("{error:#}"));
                        outcome = Outcome::Failed;
                    }
                }
            }
            if is_first && outcome == Outcome::Done {
                output::note("No resources found");
            }
            Ok(outcome)
        })
    }

    /// The objects that are meant; one that is not there is an error by itself.
    async fn objects<'a>(
        &self,
        session: &'a Session,
        words: Words,
    ) -> Result<Vec<Result<(&'a Resource, Value)>>> {
        let mut targets: Vec<Target<'a>> = Vec::new();
        let mut objects = Vec::new();
        match words {
            Words::Objects(pairs) => {
                for (kind, name) in pairs {
                    targets.push(session.target(session.resources.named(&kind)?, &name));
                }
            }
            Words::Kinds(kinds, names) => {
                for kind in kinds {
                    let resource = session.resources.named(&kind)?;
                    targets.extend(names.iter().map(|name| session.target(resource, name)));
                    if names.is_empty() {
                        objects.extend(self.list(session, resource).await?.into_iter().map(Ok));
                    }
                }
            }
        }
        for target in targets {
            let found = session.home.get(&target.path()).await;
            objects.push(found.map(|object| (target.resource, object)));
        }
        Ok(objects)
    }

    async fn list<'a>(
        &self,
        session: &Session,
        resource: &'a Resource,
    ) -> Result<Vec<(&'a Resource, Value)>> {
        let path = resource.path(session.namespace_of(resource), None);
        let selector = self.selector.as_deref().unwrap_or_default();
        let path = with(&path, &[("labelSelector", selector)]);
        let list = session.home.list_as(&path, JSON).await?;
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(items.into_iter().map(|item| (resource, item)).collect())
    }
}

async fn show(
    session: &Session,
    resource: &Resource,
    mut object: Value,
    is_first: bool,
) -> Result<()> {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| resource.api_version().into());
        fields.entry("kind").or_insert_with(|| resource.kind.clone().into());
    }
    let events = events(session, resource, &object).await;
    let gap = if is_first { "" } else { "\n" };
    output::print(&format!("{gap}{}", report(&object, &events)))
}

/// The events about an object. Who may not read them, or has none, sees the object all the same.
async fn events(session: &Session, resource: &Resource, object: &Value) -> Vec<Value> {
    let Some(kind) = session.resources.of("v1", "Event") else { return Vec::new() };
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let namespace = text("/metadata/namespace");
    let path = kind.path(Some(namespace).filter(|name| !name.is_empty()), None);
    let fields = format!(
        "involvedObject.name={},involvedObject.kind={}",
        text("/metadata/name"),
        resource.kind
    );
    let list = session.home.get(&with(&path, &[("fieldSelector", &fields)])).await;
    let mut list = match list {
        Ok(list) => list.get("items").and_then(Value::as_array).cloned().unwrap_or_default(),
        Err(error) => {
            output::warning(&format!("cannot read its events: {error:#}"));
            Vec::new()
        }
    };
    list.sort_by_key(|event| {
        let last = event.get("lastTimestamp").and_then(Value::as_str);
        last.unwrap_or_default().to_owned()
    });
    list
}
