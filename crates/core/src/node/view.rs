//! Reads a Node: its annotations, readiness, zone and age.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::api::names::annotation::{self, machinist};
use crate::api::names::state;

use super::{DriftedPath, RolloutTarget, parse_drifted};

/// The longest reason that is read. A daemon writes no longer one.
pub const MAX_REASON_CHARS: usize = 2000;
/// The longest observation that is read. A daemon writes no longer one.
pub const MAX_OBSERVATION_CHARS: usize = 1000;

/// The beginning of a text that somebody else wrote.
#[must_use]
pub fn excerpt(text: &str, max_chars: usize) -> &str {
    text.char_indices().nth(max_chars).map_or(text, |(end, _)| &text[..end])
}

/// Why a machine is not ready for pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NotReady {
    /// The condition `Ready` is not true.
    NotReady(String),
    /// The condition `DiskPressure` is not false.
    DiskPressure(String),
    /// The condition `NetworkUnavailable` is not false.
    NetworkUnavailable(String),
    /// It is cordoned.
    Unschedulable,
}

/// A Node with accessors for what rollout, drain and daemon read.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a>(pub &'a Node);

impl<'a> NodeView<'a> {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'a str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    /// The value of an annotation, even an empty one.
    #[must_use]
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.0.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn label(self, key: &str) -> Option<&'a str> {
        self.0.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn text(self, key: &str) -> &'a str {
        self.annotation(key).unwrap_or_default()
    }

    /// The config it runs.
    #[must_use]
    pub fn current_config(self) -> &'a str {
        self.text(annotation::CURRENT_CONFIG)
    }

    /// The config it should run.
    #[must_use]
    pub fn desired_config(self) -> &'a str {
        self.text(annotation::DESIRED_CONFIG)
    }

    /// The state that its daemon reports.
    #[must_use]
    pub fn state(self) -> &'a str {
        self.text(annotation::STATE)
    }

    /// Why its daemon is degraded. No more than a daemon writes: the reason becomes a part of the status of the pool, and a
    /// hostile machine must not push those of others out of it.
    #[must_use]
    pub fn reason(self) -> &'a str {
        excerpt(self.text(annotation::REASON), MAX_REASON_CHARS)
    }

    /// What its config would change, if it is only observed.
    #[must_use]
    pub fn observation(self) -> Option<&'a str> {
        self.annotation(machinist::OBSERVATION).map(|text| excerpt(text, MAX_OBSERVATION_CHARS))
    }

    /// Whether it should run a layered image.
    #[must_use]
    pub fn has_desired_image(self) -> bool {
        self.annotation(annotation::DESIRED_IMAGE).is_some()
    }

    /// Its zone.
    #[must_use]
    pub fn zone(self) -> Option<&'a str> {
        self.label("topology.kubernetes.io/zone")
    }

    /// Whether it runs Windows. Such machines are not managed.
    #[must_use]
    pub fn is_windows(self) -> bool {
        self.label("kubernetes.io/os") == Some("windows")
    }

    /// When it joined.
    #[must_use]
    pub fn created(self) -> Option<&'a Time> {
        self.0.metadata.creation_timestamp.as_ref()
    }

    /// Why it is not ready for pods, if it is not.
    #[must_use]
    pub fn not_ready(self) -> Option<NotReady> {
        let conditions = self.0.status.iter().flat_map(|status| status.conditions.iter().flatten());
        for condition in conditions {
            let status = condition.status.clone();
            match condition.type_.as_str() {
                "Ready" if status != "True" => return Some(NotReady::NotReady(status)),
                "DiskPressure" if status != "False" => return Some(NotReady::DiskPressure(status)),
                "NetworkUnavailable" if status != "False" => {
                    return Some(NotReady::NetworkUnavailable(status));
                }
                _ => {}
            }
        }
        let cordoned = self.0.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        cordoned.then_some(NotReady::Unschedulable)
    }

    /// Whether it runs the desired config and image, and its daemon reports `Done`.
    #[must_use]
    pub fn is_done(self) -> bool {
        let (current, desired) = (self.current_config(), self.desired_config());
        !current.is_empty()
            && current == desired
            && self.is_image_done()
            && self.state() == state::DONE
    }

    fn is_image_done(self) -> bool {
        let current = self.annotation(annotation::CURRENT_IMAGE);
        let desired = self.annotation(annotation::DESIRED_IMAGE);
        match (current, desired) {
            (None, None) => true,
            (current, desired) => {
                current.is_some_and(|image| !image.is_empty()) && current == desired
            }
        }
    }

    /// Whether its daemon failed to apply the desired config.
    #[must_use]
    pub fn is_failing(self) -> bool {
        self.current_config() != self.desired_config()
            && self.is_degraded()
            && !self.has_stale_failure()
    }

    /// Whether the failure that it reports is about an earlier config: it has not tried the desired one
    /// yet. MCO's daemon does not say which config it failed on; then the failure counts.
    #[must_use]
    pub fn has_stale_failure(self) -> bool {
        let failed_on = self.annotation(machinist::FAILED_CONFIG);
        self.is_degraded() && failed_on.is_some_and(|config| config != self.desired_config())
    }

    /// Why an administrator holds it, if one does.
    #[must_use]
    pub fn held(self) -> Option<&'a str> {
        self.annotation(machinist::HOLD)
    }

    /// The paths that others have changed, as its daemon last reported them.
    #[must_use]
    pub fn drifted(self) -> Vec<DriftedPath> {
        self.annotation(machinist::DRIFTED).map(parse_drifted).unwrap_or_default()
    }

    /// Whether an administrator has asked for a reboot that has not happened yet.
    #[must_use]
    pub fn requests_reboot(self) -> bool {
        !self.text(machinist::REBOOT_REQUESTED).is_empty()
    }

    /// Whether someone has asked for something that its daemon has not done yet.
    #[must_use]
    pub fn has_open_request(self) -> bool {
        let requests = [machinist::HEAL, machinist::RETRY, machinist::REBOOT_REQUESTED];
        requests.iter().any(|request| self.annotation(request).is_some())
    }

    /// Whether its daemon reports that it cannot continue.
    #[must_use]
    pub fn is_degraded(self) -> bool {
        matches!(self.state(), state::DEGRADED | state::UNRECONCILABLE)
    }

    /// Whether it was drained for a config that it then failed to apply. It stays cordoned until it gets
    /// another config. A machine that an administrator cordoned is not stranded.
    #[must_use]
    pub fn is_stranded(self) -> bool {
        let drained = self.annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
        self.is_failing()
            && self.not_ready() == Some(NotReady::Unschedulable)
            && drained.strip_prefix("drain-") == Some(self.desired_config())
    }

    /// Whether nobody has assigned it a config although its daemon reports one: it was deleted and
    /// registered again. Nothing happens to it until it has a target.
    #[must_use]
    pub fn lacks_target(self) -> bool {
        self.desired_config().is_empty() && !self.current_config().is_empty()
    }

    /// Whether it waits for the drain for its desired config. Until the drain is complete, its daemon
    /// writes nothing, and the machine can safely get another config.
    #[must_use]
    pub fn awaits_drain(self) -> bool {
        let desired = self.desired_config();
        let request = self.text(annotation::DESIRED_DRAIN);
        !desired.is_empty()
            && self.current_config() != desired
            && request.strip_prefix("drain-") == Some(desired)
            && self.annotation(annotation::LAST_APPLIED_DRAIN) != Some(request)
            // The drain before an approved reboot comes after the change was written.
            && self.annotation(machinist::REBOOT_PENDING) != Some(desired)
    }

    /// Whether it has applied its config except for a reboot that is not yet approved.
    #[must_use]
    pub fn awaits_reboot(self) -> bool {
        let desired = self.desired_config();
        !desired.is_empty()
            && !self.is_done()
            && self.annotation(machinist::REBOOT_PENDING) == Some(desired)
            && self.annotation(machinist::REBOOT_APPROVED) != Some(desired)
    }

    /// Whether it is unavailable, or may become so at any moment. A machine that failed an update is
    /// available: it can safely get another config. So is one that waits for the approval of a reboot.
    #[must_use]
    pub fn is_unavailable(self) -> bool {
        self.not_ready().is_some() || !self.is_done() && !self.is_failing() && !self.awaits_reboot()
    }

    /// Whether it runs the pool's config and image. A desired image in a pool without one does not match.
    #[must_use]
    pub fn is_updated_to<'b>(self, target: impl Into<RolloutTarget<'b>>) -> bool {
        let target = target.into();
        self.is_done() && self.desired_config() == target.config && !self.needs_target(target)
    }

    /// Whether the target has to be written to its annotations.
    #[must_use]
    pub fn needs_target<'b>(self, target: impl Into<RolloutTarget<'b>>) -> bool {
        let target = target.into();
        match target.image {
            None => self.desired_config() != target.config || self.has_desired_image(),
            Some(image) => {
                image.pull_spec.is_empty()
                    || self.annotation(annotation::DESIRED_IMAGE) != Some(image.pull_spec)
                    || image.config.is_empty()
                    || self.desired_config() != image.config
            }
        }
    }
}
