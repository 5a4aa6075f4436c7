//! The objects that a rollout is about, kept in step with the home: one watch for each kind.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::session::Session;
use super::world::{Kind, World};
use crate::home::Home;
use crate::home::request::{JSON, refused};
use crate::home::watch::{Event, Watch, revision};

/// What a rollout is about.
const KINDS: [Kind; 5] =
    [Kind::Pool, Kind::Config, Kind::Node, Kind::MachineConfigNode, Kind::ControllerConfig];
/// Changes within this time are shown together.
const BURST: Duration = Duration::from_millis(100);
/// How often and after how long a home that does not answer is asked again.
const TRIES: u32 = 60;
const RETRY: Duration = Duration::from_secs(1);

/// What came from the home.
enum News {
    All(Kind, Vec<Value>),
    Set(Kind, Value),
    Removed(Kind, Value),
    Failed(anyhow::Error),
}

/// A world that follows the home.
pub(in crate::cli) struct Following {
    pub(in crate::cli) world: World,
    receiver: mpsc::UnboundedReceiver<News>,
    /// Kinds that have not been seen yet.
    missing: Vec<Kind>,
}

impl Session {
    /// Follows what a rollout is about from now on.
    pub(in crate::cli) fn follow(&self) -> Result<Following> {
        self.needed(Kind::Pool)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut missing = Vec::new();
        for kind in KINDS {
            let Some(resource) = self.kind(kind) else { continue };
            missing.push(kind);
            let path = resource.path(None, None);
            tokio::spawn(follow(self.home.clone(), path, kind, sender.clone()));
        }
        Ok(Following { world: World::default(), receiver, missing })
    }
}

impl Following {
    /// Waits until something has changed, and for the rest of the burst. The first time, until
    /// everything has been seen.
    ///
    /// # Errors
    /// The home has not answered for a minute, or refuses.
    pub(in crate::cli) async fn next(&mut self) -> Result<()> {
        let Some(news) = self.receiver.recv().await else { return Ok(()) };
        self.take(news)?;
        while !self.missing.is_empty() {
            let Some(news) = self.receiver.recv().await else { return Ok(()) };
            self.take(news)?;
        }
        sleep(BURST).await;
        while let Ok(Some(news)) = timeout(Duration::ZERO, self.receiver.recv()).await {
            self.take(news)?;
        }
        Ok(())
    }

    fn take(&mut self, news: News) -> Result<()> {
        match news {
            News::All(kind, objects) => {
                self.missing.retain(|missing| *missing != kind);
                self.world.replace(kind, &objects)
            }
            News::Set(kind, object) => self.world.change(kind, &object, false),
            News::Removed(kind, object) => self.world.change(kind, &object, true),
            News::Failed(error) => Err(error),
        }
    }
}

/// Follows one kind until nobody listens. A home that is away for a moment is waited for.
async fn follow(home: Home, path: String, kind: Kind, sender: mpsc::UnboundedSender<News>) {
    let mut failures = 0;
    while !sender.is_closed() {
        let Err(error) = follow_once(&home, &path, kind, &sender, &mut failures).await else {
            continue;
        };
        failures += 1;
        let is_final = matches!(refused(&error), Some(400..=409));
        if failures > TRIES || is_final {
            // Nobody may listen any more.
            let _ = sender.send(News::Failed(error));
            return;
        }
        sleep(RETRY).await;
    }
}

/// Lists and watches until the revision is too old.
async fn follow_once(
    home: &Home,
    path: &str,
    kind: Kind,
    sender: &mpsc::UnboundedSender<News>,
    failures: &mut u32,
) -> Result<()> {
    let mut list = home.list_as(path, JSON).await?;
    *failures = 0;
    let items = match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let _ = sender.send(News::All(kind, items));
    let start = revision(&list).unwrap_or_default().to_owned();
    let mut watch = Watch::new(home, path.to_owned(), JSON, &start);
    while let Some(event) = watch.next().await? {
        let news = match event {
            Event::Set(object) => News::Set(kind, object),
            Event::Removed(object) => News::Removed(kind, object),
            Event::Bookmark(_) => continue,
        };
        if sender.send(news).is_err() {
            break;
        }
    }
    Ok(())
}
