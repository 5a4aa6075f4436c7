//! Why a request is refused, and with which HTTP status.
//!
//! Ignition retries forever on 5xx and gives up on 4xx, so everything that may resolve itself is
//! 5xx.

use crate::ignition::convert::ConvertError;
use crate::ignition::unpacked_size::UnpackedTooLarge;
use crate::ignition::{IgnitionError, IgnitionVersion};

/// The `Retry-After` of a temporary failure, in seconds. Ignition ignores it; other clients honour
/// it.
pub const RETRY_AFTER_SECONDS: u32 = 5;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client requests a version that does not exist.
    #[error("unsupported Ignition version in Accept header: {0}")]
    UnsupportedVersion(String),
    /// The index of the etcd member is invalid.
    #[error("etcd_index is {0:?}: use an integer from 0 to 9999")]
    InvalidEtcdIndex(String),
    /// The pool does not exist.
    #[error("MachineConfigPool {0:?} does not exist")]
    UnknownPool(String),
    /// The pool has no rendered config yet.
    #[error(
        "MachineConfigPool {0:?} has no rendered config yet; see its conditions and the controller's log"
    )]
    NotRendered(String),
    /// The rendered config does not exist, or not yet.
    #[error(
        "MachineConfigPool {pool:?} refers to the MachineConfig {config:?}, which does not exist (yet)"
    )]
    ConfigMissing {
        /// The pool.
        pool: String,
        /// The config that it names.
        config: String,
    },
    /// A file of the bootstrap directory is missing.
    #[error("{0} does not exist")]
    FileMissing(String),
    /// Only the control plane is served during the installation of the cluster.
    #[error("refusing to serve bootstrap configuration to pool {0:?}")]
    NotInBootstrap(String),
    /// The ControllerConfig is missing.
    #[error(
        "could not get controllerconfig: there is no ControllerConfig machine-config-controller"
    )]
    NoControllerConfig,
    /// An input of the kubeconfig is missing.
    #[error("cannot create the kubeconfig for machines: {0}")]
    Kubeconfig(String),
    /// The certificate of an image registry is not available.
    #[error("{0}")]
    Certificate(String),
    /// An object cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The Ignition config of the MachineConfig is not valid.
    #[error("parsing Ignition config failed with error: {0}")]
    Ignition(#[from] IgnitionError),
    /// The contents of files exceed a limit.
    #[error("the rendered config is too large: {0}")]
    UnpackedTooLarge(#[from] UnpackedTooLarge),
    /// Kernel arguments to remove cannot be expressed in an older version.
    #[error(
        "failed to migrate kernel args can't serve version {0} with ignition KernelArguments.ShouldNotExist populated"
    )]
    KernelArgumentsUnsupported(IgnitionVersion),
    /// The requested version cannot express the config.
    #[error("failed to convert config: {0}")]
    Convert(#[from] ConvertError),
    /// The response cannot be encoded as JSON.
    #[error("cannot encode the response: {0}")]
    Encode(#[from] serde_json::Error),
    /// The client is not authenticated.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// The client is not allowed to do this.
    #[error("{0}")]
    Forbidden(&'static str),
    /// The API server does not record the use of a token.
    #[error("cannot record the use of the provisioning token: {0}")]
    TokenUseNotRecorded(String),
    /// A secret is in a place that cannot be sealed.
    #[error(
        "the config cannot be sealed: {0}; Ignition needs it before the machine is enrolled; move it to a separate file, or let everyone read it with the annotation machinist.dev/public-paths"
    )]
    Unsealable(String),
    /// The certificate request is invalid.
    #[error("the certificate request is invalid: {0}")]
    BadRequest(String),
    /// The API server does not store a certificate request.
    #[error("cannot store the enrolment: {0}")]
    EnrolmentNotStored(String),
    /// The client sends too many requests.
    #[error("too many requests from this address")]
    TooManyRequests,
}

impl ServeError {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::UnsupportedVersion(_) | Self::InvalidEtcdIndex(_) | Self::BadRequest(_) => 400,
            Self::Unauthorized(_) => 401,
            Self::Forbidden(_) => 403,
            Self::UnknownPool(_) | Self::FileMissing(_) => 404,
            // Ignition retries on 503, and would give up on 429.
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
            | Self::UnpackedTooLarge(_)
            | Self::KernelArgumentsUnsupported(_)
            | Self::Convert(_)
            | Self::Encode(_) => 500,
        }
    }

    /// The `Retry-After` header, if the failure is temporary.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        (self.status() == 503).then_some(RETRY_AFTER_SECONDS)
    }
}
