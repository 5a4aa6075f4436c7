//! What the daemon remembers between two steps, and the rules for retries, timeouts and SIGTERM.
//!
//! The shell performs effects and records them here. It keeps no other state that a decision depends
//! on; what it finds each time (the Node, the disk, the watch for drift) is an observation. Time is a duration since the daemon started, because core has no clock.

use std::time::Duration;

use super::identity_claim::ClaimState;
use super::{AgentStep, AgentWait, PendingChange, backoff};
use crate::api::names::path::FORCE;
use crate::api::operator::DisruptionAction;
use crate::drift::{DriftedPath, HealLimit};
use crate::os::OsChange;

/// After this long a drain is reported as failed. MCO waits an hour; pods with long shutdowns need it.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(3600);
/// After this long an uncordon is reported as failed, as in MCO.
pub const UNCORDON_TIMEOUT: Duration = Duration::from_secs(600);

/// After this many failures of its actions, a config is not tried again by itself.
pub const MAX_ACTION_ATTEMPTS: u32 = 5;

/// A config whose post-apply actions failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedActions {
    /// The config.
    pub config: String,
    /// How often they failed.
    pub attempts: u32,
    /// The last failure.
    pub reason: String,
}

/// What the daemon remembers between two steps.
///
/// Lost on restart. Correctness must not depend on it: after a restart the daemon repeats checks and
/// actions that were already done, which is harmless.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// Whether the disk was compared with its config since the daemon started.
    pub is_disk_verified: bool,
    /// Whether systemd was asked to reboot the machine.
    pub is_reboot_ordered: bool,
    /// The config on which this machine passed its health checks.
    pub healthy_on: Option<String>,
    /// The config whose post-apply actions have run.
    pub actions_run_for: Option<String>,
    /// The config whose actions failed.
    pub failed_actions: Option<FailedActions>,
    /// The OS change whose image and packages are already downloaded.
    pub fetched_os_change: Option<OsChange>,
    /// Whether an interrupted change could not be recovered yet. It is tried again before anything else.
    pub needs_recovery: bool,
    /// What recovery did to an interrupted change, until an event reports it.
    pub unreported_recovery: Option<String>,
    /// The request that the daemon waits for.
    pub waiting: Option<Waiting>,
    /// How many reconciles failed in a row.
    pub failures: u32,
    /// When to retry after a failure.
    pub retry: Option<Retry>,
    /// Which paths were healed lately, and how often.
    pub heal_limit: HealLimit,
    /// The paths that others have changed, as they were last found.
    pub drifted: Vec<DriftedPath>,
    /// Whether the kubelet ran before the last change, which restarts services.
    pub has_kubelet_run: bool,
    /// After how many changes of the disk the abilities of the host were reported last.
    pub abilities_reported_at: Option<u64>,
    /// Whether this daemon is stored as the last good one.
    pub is_last_good_stored: bool,
    /// Since when the machine has no Node, although the API server can be reached.
    pub node_missing_since: Option<Duration>,
    /// Whether this machine or another one acts under its identity.
    pub claim: ClaimState,
    /// What the daemon is doing right now.
    pub phase: Phase,
}

/// A request to the drain controller that is not fulfilled yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The request, as it stands in the annotation.
    pub request: String,
    /// When the daemon began to wait.
    pub since: Duration,
    /// Whether the timeout was reported. It is reported once.
    pub is_timeout_reported: bool,
}

/// The next attempt after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// When it is due.
    pub at: Duration,
    /// The annotations that others wrote, at the time of the failure. When they change, the retry is
    /// due immediately.
    pub inputs: Vec<Option<String>>,
}

/// What the daemon is doing, as far as a request to stop is concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// Deciding, or waiting for someone else.
    #[default]
    Idle,
    /// Checking whether the desired config can be applied.
    Preparing,
    /// Downloading the OS. An interrupted download is continued later.
    FetchingOs,
    /// Writing files and staging the OS.
    Writing,
    /// Running post-apply actions.
    RunningActions,
    /// Repairing drift.
    Healing,
    /// Returning to the previous config.
    RollingBack,
    /// Handing over to systemd, which stops the daemon.
    Rebooting,
}

impl Phase {
    /// Whether SIGTERM has to wait until this phase is over.
    #[must_use]
    pub const fn defers_sigterm(self) -> bool {
        match self {
            Self::Idle | Self::FetchingOs | Self::Rebooting => false,
            Self::Preparing
            | Self::Writing
            | Self::RunningActions
            | Self::Healing
            | Self::RollingBack => true,
        }
    }
}

impl Phase {
    /// After this long without another phase the daemon is stuck, and its watchdog restarts it. A download may be slow, and
    /// actions and health checks may have long deadlines; nothing else of a step takes more than minutes.
    #[must_use]
    pub const fn time_limit(self) -> Duration {
        match self {
            Self::FetchingOs => Duration::from_secs(12 * 3600),
            Self::RunningActions => Duration::from_secs(6 * 3600),
            Self::Idle
            | Self::Preparing
            | Self::Writing
            | Self::Healing
            | Self::RollingBack
            | Self::Rebooting => Duration::from_secs(2 * 3600),
        }
    }
}

/// A change of the SIGTERM protection, which MCO reports as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigtermProtection {
    /// From now on SIGTERM waits.
    Added,
    /// SIGTERM takes effect again.
    Removed,
}

/// Something the daemon did that later decisions depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// Interrupted changes were recovered.
    Recovered {
        /// What was done to one, if there was one.
        report: Option<String>,
    },
    /// Interrupted changes cannot be recovered now.
    RecoveryFailed,
    /// The disk was compared with its config.
    DiskVerified,
    /// The disk may differ from its config without anyone having noticed.
    DiskSuspected,
    /// Everything an OS change needs is downloaded.
    OsFetched(OsChange),
    /// A change of the disk begins. Its actions and health checks are still to be run.
    WriteStarted,
    /// The post-apply actions of a config have run.
    ActionsRun {
        /// The config.
        config: String,
    },
    /// The post-apply actions of a config failed.
    ActionsFailed {
        /// The config.
        config: String,
        /// Why.
        reason: String,
    },
    /// Someone asked for another attempt.
    AttemptForced,
    /// Systemd was asked to reboot the machine.
    RebootOrdered,
    /// The machine passed its health checks.
    HealthPassed {
        /// The config it runs.
        config: String,
    },
    /// The new OS runs and its leftovers were removed.
    OsConfirmed,
    /// A change is complete, and its record is removed from the disk.
    ChangeCompleted,
    /// The machine has its desired config and reported that.
    UpdateFinished,
    /// Something that a failed attempt may depend on has changed.
    RetryNow,
}

/// How long to wait for someone else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitStatus {
    /// Until something changes, or for this long at most.
    Waiting(Option<Duration>),
    /// Too long. Report it, once.
    TimedOut(WaitTimeout),
}

/// A request that was not fulfilled in time, in MCO's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitTimeout {
    /// The reason of the event.
    pub event_reason: &'static str,
    /// The error.
    pub message: String,
}

impl Session {
    /// Records that a step was chosen, before it is performed.
    pub fn begin(&mut self, step: &AgentStep) {
        if !matches!(step, AgentStep::Wait(_)) {
            self.waiting = None;
        }
        if *step == AgentStep::Idle {
            self.failures = 0;
        }
    }

    /// Records what the daemon did.
    pub fn after(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Recovered { report } => {
                self.needs_recovery = false;
                self.unreported_recovery = report.or(self.unreported_recovery.take());
            }
            SessionEvent::RecoveryFailed => self.needs_recovery = true,
            SessionEvent::DiskVerified => self.is_disk_verified = true,
            SessionEvent::DiskSuspected => self.is_disk_verified = false,
            SessionEvent::OsFetched(change) => self.fetched_os_change = Some(change),
            SessionEvent::WriteStarted => {
                (self.actions_run_for, self.healthy_on) = (None, None);
                self.heal_limit.clear();
            }
            SessionEvent::ChangeCompleted => {
                (self.actions_run_for, self.healthy_on) = (None, None);
            }
            SessionEvent::ActionsRun { config } => self.actions_run_for = Some(config),
            SessionEvent::ActionsFailed { config, reason } => {
                let known = self.failed_actions.take().filter(|known| known.config == config);
                let attempts = known.map_or(0, |known| known.attempts).saturating_add(1);
                self.failed_actions = Some(FailedActions { config, attempts, reason });
            }
            SessionEvent::AttemptForced => self.failed_actions = None,
            SessionEvent::RebootOrdered => self.is_reboot_ordered = true,
            SessionEvent::HealthPassed { config } => self.healthy_on = Some(config),
            SessionEvent::OsConfirmed => self.fetched_os_change = None,
            SessionEvent::UpdateFinished => {
                self.is_disk_verified = true;
                self.failures = 0;
                self.failed_actions = None;
            }
            SessionEvent::RetryNow => self.retry = None,
        }
    }

    /// Records that a reconcile failed. Returns how long to wait for the next one.
    pub fn fail(&mut self, now: Duration, inputs: Vec<Option<String>>) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let pause = backoff(self.failures);
        self.retry = Some(Retry { at: now + pause, inputs });
        pause
    }

    /// Records that a reconcile failed, and that nothing is gained by another one before this pause is over.
    pub fn fail_for(
        &mut self,
        now: Duration,
        pause: Duration,
        inputs: Vec<Option<String>>,
    ) -> Duration {
        self.retry = Some(Retry { at: now + pause, inputs });
        pause
    }

    /// How long to wait before the next reconcile; `None` if it is due. A failed attempt is repeated
    /// after a pause, or as soon as `inputs` differ from those of the failure.
    pub fn retry_delay(&mut self, now: Duration, inputs: &[Option<String>]) -> Option<Duration> {
        let left = self.retry.as_ref().filter(|retry| retry.inputs == inputs);
        let left = left.map(|retry| retry.at.saturating_sub(now)).filter(|left| !left.is_zero());
        if left.is_none() {
            self.retry = None;
        }
        left
    }

    /// Waits for someone else. Measures from the first call with the same request.
    pub fn wait(&mut self, wait: &AgentWait, node: &str, now: Duration) -> WaitStatus {
        let (request, timeout, (event_reason, verb, limit)) = match wait {
            AgentWait::DesiredConfig | AgentWait::Held | AgentWait::RebootApproval { .. } => {
                return WaitStatus::Waiting(None);
            }
            AgentWait::Drain { request } => {
                (request, DRAIN_TIMEOUT, ("FailedToDrain", "drain", "1 hour"))
            }
            AgentWait::Uncordon { request } => {
                (request, UNCORDON_TIMEOUT, ("FailedToUncordon", "uncordon", "10 minutes"))
            }
        };
        let known = self.waiting.take().filter(|waiting| waiting.request == *request);
        let mut waiting = known.unwrap_or_else(|| Waiting {
            request: request.clone(),
            since: now,
            is_timeout_reported: false,
        });
        let left = timeout.saturating_sub(now.saturating_sub(waiting.since));
        let is_new_timeout = left.is_zero() && !waiting.is_timeout_reported;
        waiting.is_timeout_reported |= is_new_timeout;
        self.waiting = Some(waiting);
        if is_new_timeout {
            let message = format!(
                "failed to {verb} node: {node} after {limit}. Please see machine-config-controller logs for more information"
            );
            return WaitStatus::TimedOut(WaitTimeout { event_reason, message });
        }
        WaitStatus::Waiting((!left.is_zero()).then_some(left))
    }

    /// Enters a phase. Returns how that changes the SIGTERM protection, if it does.
    pub fn enter(&mut self, phase: Phase) -> Option<SigtermProtection> {
        let before = std::mem::replace(&mut self.phase, phase);
        match (before.defers_sigterm(), phase.defers_sigterm()) {
            (false, true) => Some(SigtermProtection::Added),
            (true, false) => Some(SigtermProtection::Removed),
            _ => None,
        }
    }

    /// The actions of a change that are still to be run in this boot.
    #[must_use]
    pub fn remaining_actions<'a>(
        &self,
        pending: &'a PendingChange,
        boot_id: &str,
    ) -> &'a [DisruptionAction] {
        match &self.actions_run_for {
            Some(config) if *config == pending.config => &[],
            _ => pending.remaining_actions(boot_id),
        }
    }

    /// A pending change without the actions that have run: what the next change has to take over.
    #[must_use]
    pub fn unfinished(&self, pending: Option<PendingChange>) -> Option<PendingChange> {
        pending.map(|mut pending| {
            if self.actions_run_for.as_ref() == Some(&pending.config) {
                pending.actions.clear();
            }
            pending
        })
    }

    /// Why a config is not tried again, if its actions failed too often.
    #[must_use]
    pub fn gave_up_on(&self, config: &str) -> Option<String> {
        let failed = self.failed_actions.as_ref()?;
        let is_final = failed.config == config && failed.attempts >= MAX_ACTION_ATTEMPTS;
        is_final.then(|| {
            format!(
                "{}; gave up on {config} after {} attempts: correct the cause and create {FORCE}, or assign another config",
                failed.reason, failed.attempts
            )
        })
    }

    /// Whether what the host can do is reported before a step: when the daemon has started, and whenever it becomes idle
    /// after a change of the disk, because a config may install a boot loader or a container runtime.
    #[must_use]
    pub fn are_abilities_due(&self, step: &AgentStep, disk_changes: u64) -> bool {
        match step {
            AgentStep::Idle => self.abilities_reported_at != Some(disk_changes),
            AgentStep::AwaitReboot | AgentStep::ReportInitialConfig => false,
            _ => self.abilities_reported_at.is_none(),
        }
    }

    /// Takes note that a healthy daemon is stored for its watchdog. Returns whether that is still to be done.
    pub fn take_last_good(&mut self) -> bool {
        !std::mem::replace(&mut self.is_last_good_stored, true)
    }

    /// Whether an update goes on although the disk has drifted: only in paths that were healed and that something else
    /// changes at once again.
    #[must_use]
    pub fn may_update_despite_drift(&self) -> bool {
        let mut paths = self.drifted.iter().map(|drifted| drifted.path.as_str());
        self.heal_limit.are_all_in_conflict(&mut paths)
    }

    /// Whether an OS change has to be downloaded first.
    #[must_use]
    pub fn needs_fetch(&self, change: &OsChange) -> bool {
        !change.is_empty() && self.fetched_os_change.as_ref() != Some(change)
    }

    /// Whether the health checks of a config decide whether its update is kept. A rollback is not
    /// checked, nor a reboot without a change: there is nothing to return to.
    #[must_use]
    pub fn needs_health_check(&self, pending: Option<&PendingChange>, config: &str) -> bool {
        pending.is_some_and(|pending| !pending.is_rollback && !pending.keeps_config())
            && self.healthy_on.as_deref() != Some(config)
    }
}

#[cfg(test)]
mod tests;
