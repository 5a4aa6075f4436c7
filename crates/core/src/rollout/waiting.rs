//! Why a machine waits.

use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Serialize, Serializer};

use crate::drain::DrainBlocker;

use crate::node::{DriftedPath, NotReady};

/// Machine names, shared between reasons: thousands of machines may wait for the same few.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineNames(Arc<[String]>);

impl Deref for MachineNames {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl From<Vec<String>> for MachineNames {
    fn from(names: Vec<String>) -> Self {
        Self(names.into())
    }
}

impl Serialize for MachineNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

/// Why a machine does not get the new config now, or has not finished yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase")]
pub enum WaitReason {
    /// The pool is paused.
    PoolPaused,
    /// The pool has no rendered config yet.
    NothingRendered,
    /// It is applying the new config.
    Working {
        /// The state or message of its daemon.
        state: String,
    },
    /// It has failed on the new config.
    Failing {
        /// The state or message of its daemon.
        message: String,
    },
    /// Others have changed paths of its config. It gets no new config until they are healed.
    Drifted {
        /// The paths.
        paths: Vec<DriftedPath>,
    },
    /// It has its config, and its daemon reports that something else is wrong.
    Degraded {
        /// The message of its daemon.
        message: String,
    },
    /// An administrator holds it.
    Held {
        /// Why.
        because: String,
    },
    /// It needs another config and is still busy with an earlier one.
    Superseded {
        /// The config that it is working on.
        config: String,
    },
    /// It is not ready.
    NotReady {
        /// Why.
        because: NotReady,
    },
    /// The limit of unavailable machines is reached.
    NoCapacity {
        /// The limit.
        #[serde(rename = "maxUnavailable")]
        max_unavailable: i64,
        /// The machines that are unavailable or failing on the new config.
        away: MachineNames,
    },
    /// Others are updated first: by zone, then by age.
    NotItsTurn {
        /// How many are updated before it.
        ahead: usize,
    },
    /// The maintenance window is closed.
    OutsideWindow {
        /// When it opens.
        opens: Time,
    },
    /// The canaries have not finished.
    Canary {
        /// The canaries that have not finished.
        machines: MachineNames,
    },
    /// The canaries have finished and have to stay healthy for a while.
    Soaking {
        /// When the others may follow.
        until: Time,
    },
    /// Too many machines failed on the config.
    BadConfig {
        /// The config.
        config: String,
    },
    /// It has applied the config except for a reboot that is not yet approved.
    RestartPending {
        /// When the maintenance window opens. Without a window an administrator has to approve the reboot.
        #[serde(skip_serializing_if = "Option::is_none")]
        opens: Option<Time>,
    },
    /// It would refuse the config, as its host is.
    Refused {
        /// Why.
        because: String,
    },
    /// The layered image of its pool is not ready.
    Image {
        /// Its progress.
        because: String,
    },
    /// It is only observed.
    Observing {
        /// What the config would change, as its daemon reports it; empty until it does.
        would: String,
    },
    /// It is being drained. Only the drain controller sets this reason: it alone knows the blockers.
    Draining {
        /// The pods that block the drain.
        blockers: Vec<DrainBlocker>,
    },
}
