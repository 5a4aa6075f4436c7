//! What the rollout looks at in a Node: its annotations, readiness, zone and age.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::api::names::annotation::{self, machinist};
use crate::api::names::state;

use super::RolloutTarget;

/// Why a machine is not ready for work.
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

/// A Node as the rollout sees it.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a>(pub &'a Node);

impl<'a> NodeView<'a> {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'a str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    /// An annotation, be it empty.
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

    /// The config it has.
    #[must_use]
    pub fn current_config(self) -> &'a str {
        self.text(annotation::CURRENT_CONFIG)
    }

    /// The config it is to have.
    #[must_use]
    pub fn desired_config(self) -> &'a str {
        self.text(annotation::DESIRED_CONFIG)
    }

    /// What its daemon says it is doing.
    #[must_use]
    pub fn state(self) -> &'a str {
        self.text(annotation::STATE)
    }

    /// Why its daemon degraded.
    #[must_use]
    pub fn reason(self) -> &'a str {
        self.text(annotation::REASON)
    }

    /// Whether a layered image is wanted for it.
    #[must_use]
    pub fn has_desired_image(self) -> bool {
        self.annotation(annotation::DESIRED_IMAGE).is_some()
    }

    /// Its zone.
    #[must_use]
    pub fn zone(self) -> Option<&'a str> {
        self.label("topology.kubernetes.io/zone")
    }

    /// Whether it runs Windows: such machines are none of our business.
    #[must_use]
    pub fn is_windows(self) -> bool {
        self.label("kubernetes.io/os") == Some("windows")
    }

    /// When it joined.
    #[must_use]
    pub fn created(self) -> Option<&'a Time> {
        self.0.metadata.creation_timestamp.as_ref()
    }

    /// What keeps it from taking work, if anything.
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

    /// Whether it has what it is to have, and its daemon says so.
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

    /// Whether its daemon tried the desired config and could not apply it.
    #[must_use]
    pub fn is_failing(self) -> bool {
        self.current_config() != self.desired_config() && self.is_degraded()
    }

    /// Whether its daemon says that it cannot go on.
    #[must_use]
    pub fn is_degraded(self) -> bool {
        matches!(self.state(), state::DEGRADED | state::UNRECONCILABLE)
    }

    /// Whether it was emptied for a config that it then could not apply, and waits empty for another
    /// one: nobody but us has cordoned it.
    #[must_use]
    pub fn is_stranded(self) -> bool {
        let drained = self.annotation(annotation::LAST_APPLIED_DRAIN).unwrap_or_default();
        self.is_failing()
            && self.not_ready() == Some(NotReady::Unschedulable)
            && drained.strip_prefix("drain-") == Some(self.desired_config())
    }

    /// Whether it has applied its config all but for a restart, and may not restart yet.
    #[must_use]
    pub fn awaits_reboot(self) -> bool {
        let desired = self.desired_config();
        !desired.is_empty()
            && !self.is_done()
            && self.annotation(machinist::REBOOT_PENDING) == Some(desired)
            && self.annotation(machinist::REBOOT_APPROVED) != Some(desired)
    }

    /// Whether it is away, or may go away at any moment. One whose daemon has given up on an
    /// update is not: it can safely be given another one. Nor is one that waits for the permission
    /// to restart.
    #[must_use]
    pub fn is_unavailable(self) -> bool {
        self.not_ready().is_some() || !self.is_done() && !self.is_failing() && !self.awaits_reboot()
    }

    /// Whether it has the pool's config and image; an image that is wanted of it in a pool without
    /// one is wrong.
    #[must_use]
    pub fn is_updated_to<'b>(self, goal: impl Into<RolloutTarget<'b>>) -> bool {
        let goal = goal.into();
        self.is_done() && self.desired_config() == goal.config && !self.needs_target(goal)
    }

    /// Whether it has to be given the goal.
    #[must_use]
    pub fn needs_target<'b>(self, goal: impl Into<RolloutTarget<'b>>) -> bool {
        let goal = goal.into();
        match goal.image {
            None => self.desired_config() != goal.config || self.has_desired_image(),
            Some(image) => {
                image.pull_spec.is_empty()
                    || self.annotation(annotation::DESIRED_IMAGE) != Some(image.pull_spec)
                    || image.config.is_empty()
                    || self.desired_config() != image.config
            }
        }
    }
}
