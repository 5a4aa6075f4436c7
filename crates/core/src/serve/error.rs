//! Why there is no answer, and with which status that is said.
//!
//! Ignition tries again for ever on 5xx and gives up on 4xx. So what may come right by itself is 5xx.

use crate::ignition::convert::ConvertError;
use crate::ignition::{IgnitionError, IgnitionVersion};

/// How long a machine is asked to wait before it tries again, in seconds. Ignition has its own opinion; others listen.
pub const RETRY_AFTER_SECONDS: u32 = 5;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client asks for a version that there is none of.
    #[error("unsupported Ignition version in Accept header: {0}")]
    UnsupportedVersion(String),
    /// The index of the etcd member is none.
    #[error("etcd_index is {0:?}: it has to be a whole number from 0 to 9999")]
    InvalidEtcdIndex(String),
    /// There is no such pool.
    #[error("there is no MachineConfigPool {0:?}")]
    UnknownPool(String),
    /// The pool has no rendered config yet.
    #[error(
        "MachineConfigPool {0:?} names no rendered config yet; see its conditions and the controller's log"
    )]
    NotRendered(String),
    /// The rendered config is not there, or not yet.
    #[error(
        "MachineConfigPool {pool:?} names the MachineConfig {config:?}, which is not there (yet)"
    )]
    ConfigMissing {
        /// The pool.
        pool: String,
        /// The config that it names.
        config: String,
    },
    /// A file of the bootstrap folder is not there.
    #[error("{0} is not there")]
    FileMissing(String),
    /// Only the control plane is served while the cluster is being made.
    #[error("refusing to serve bootstrap configuration to pool {0:?}")]
    NotInBootstrap(String),
    /// There is no ControllerConfig.
    #[error(
        "could not get controllerconfig: there is no ControllerConfig machine-config-controller"
    )]
    NoControllerConfig,
    /// What the kubeconfig is made of is not there.
    #[error("the kubeconfig for machines cannot be made: {0}")]
    Kubeconfig(String),
    /// A certificate for an image registry cannot be had.
    #[error("{0}")]
    Certificate(String),
    /// An object cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The Ignition config of the MachineConfig is not valid.
    #[error("parsing Ignition config failed with error: {0}")]
    Ignition(#[from] IgnitionError),
    /// Kernel arguments that are to go cannot be said in an older version.
    #[error(
        "failed to migrate kernel args can't serve version {0} with ignition KernelArguments.ShouldNotExist populated"
    )]
    KernelArgumentsUnsupported(IgnitionVersion),
    /// The version that was asked for cannot say what the config says.
    #[error("failed to convert config: {0}")]
    Convert(#[from] ConvertError),
    /// The answer cannot be written as JSON.
    #[error("cannot write the answer: {0}")]
    Encode(#[from] serde_json::Error),
    /// Whoever asks has no right to it.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// Whoever asks must not ask from there.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The home does not take down that a token was used.
    #[error("the use of the provisioning token cannot be recorded: {0}")]
    TokenUseNotRecorded(String),
    /// A secret is where it cannot be sealed.
    #[error(
        "the config cannot be sealed: {0}; Ignition needs it before the machine is known: move it to a file of its own"
    )]
    Unsealable(String),
    /// A request for a certificate is none.
    #[error("the request for a certificate is not one: {0}")]
    BadRequest(String),
    /// The home does not keep a request for a certificate.
    #[error("the enrolment cannot be kept: {0}")]
    EnrolmentNotStored(String),
    /// Whoever asks asks too often.
    #[error("too many requests from this address")]
    TooManyRequests,
}

impl ServeError {
    /// The status that says it.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::UnsupportedVersion(_) | Self::InvalidEtcdIndex(_) | Self::BadRequest(_) => 400,
            Self::Unauthorized(_) => 401,
            Self::Forbidden(_) => 403,
            Self::UnknownPool(_) | Self::FileMissing(_) => 404,
            // Ignition waits on 503, and would give up on 429.
            Self::NotRendered(_)
            | Self::ConfigMissing { .. }
            | Self::NoControllerConfig
            | Self::TokenUseNotRecorded(_)
            | Self::EnrolmentNotStored(_)
            | Self::TooManyRequests => 503,
            Self::NotInBootstrap(_)
            | Self::Kubeconfig(_)
            | Self::Certificate(_)
            | Self::Unreadable(_)
            | Self::Unsealable(_)
            | Self::Ignition(_)
            | Self::KernelArgumentsUnsupported(_)
            | Self::Convert(_)
            | Self::Encode(_) => 500,
        }
    }

    /// After how many seconds to try again, where that is worth saying.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        (self.status() == 503).then_some(RETRY_AFTER_SECONDS)
    }
}
