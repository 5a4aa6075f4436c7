//! What a machine waits for.

use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Serialize, Serializer};

use crate::drain::DrainBlocker;

use crate::node::NotReady;

/// Names of machines that many reasons share: thousands may wait for the same few.
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

/// Why a machine that needs the new config does not get it now, or is not there yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase")]
pub enum WaitReason {
    /// The pool is paused.
    PoolPaused,
    /// The pool has no rendered config yet.
    NothingRendered,
    /// It is working on the new config.
    Working {
        /// What its daemon says.
        state: String,
    },
    /// It has failed on the new config.
    Failing {
        /// What its daemon says.
        message: String,
    },
    /// It is not ready for work, and so not for an update either.
    NotReady {
        /// What is the matter.
        because: NotReady,
    },
    /// As many machines as may be away are away already.
    NoCapacity {
        /// How many may be away.
        #[serde(rename = "maxUnavailable")]
        max_unavailable: i64,
        /// Who is away, or failing on the new config.
        away: MachineNames,
    },
    /// Others come first: by zone, then by age.
    NotItsTurn {
        /// How many go before it.
        ahead: usize,
    },
    /// The maintenance window is closed.
    OutsideWindow {
        /// When it opens.
        opens: Time,
    },
    /// A few machines go before all others, and are not through.
    Canary {
        /// Those that are not through.
        machines: MachineNames,
    },
    /// The first machines are through, and have to prove themselves for a while.
    Soaking {
        /// When the others may go.
        until: Time,
    },
    /// The config is one of the bad ones.
    BadConfig {
        /// The config.
        config: String,
    },
    /// It has applied the config all but for a restart, and may not restart yet.
    RestartPending {
        /// When the maintenance window opens; without one, a person has to say so.
        #[serde(skip_serializing_if = "Option::is_none")]
        opens: Option<Time>,
    },
    /// The image that its pool runs is not there yet.
    Image {
        /// How far it is.
        because: String,
    },
    /// It is being emptied of its pods. Only who drains knows that, so only they say it.
    Draining {
        /// Who is in the way.
        blockers: Vec<DrainBlocker>,
    },
}
