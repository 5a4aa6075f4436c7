//! Condition types, by the kind that has them.

/// Conditions of a MachineConfigPool.
pub mod pool {
    /// All machines have the desired configuration.
    pub const UPDATED: &str = "Updated";
    /// A change is being rolled out.
    pub const UPDATING: &str = "Updating";
    /// One of the other degraded conditions is true.
    pub const DEGRADED: &str = "Degraded";
    /// A machine could not be updated.
    pub const NODE_DEGRADED: &str = "NodeDegraded";
    /// The configuration could not be rendered.
    pub const RENDER_DEGRADED: &str = "RenderDegraded";
    /// The image could not be built.
    pub const IMAGE_BUILD_DEGRADED: &str = "ImageBuildDegraded";
    /// Pinned images could not be pulled.
    pub const PINNED_IMAGE_SETS_DEGRADED: &str = "PinnedImageSetsDegraded";
    /// Something blocks the rollout that MCO would only log. Machinist's own.
    pub const ROLLOUT_BLOCKED: &str = "RolloutBlocked";
    /// Machines of the pool are only observed; the message says what would change. Machinist's own.
    pub const OBSERVING: &str = "Observing";
    /// An object that MachineConfigs are generated from cannot be applied. The MachineConfig that
    /// was generated before stays. Machinist's own.
    pub const GENERATE_DEGRADED: &str = "GenerateDegraded";
    /// An administrator's MachineConfig and a generated one write the same file; the message says
    /// which one wins. Machinist's own.
    pub const GENERATED_OVERRIDDEN: &str = "GeneratedOverridden";
    /// An image build is waiting to start.
    pub const BUILD_PENDING: &str = "BuildPending";
    /// An image is being built.
    pub const BUILDING: &str = "Building";
    /// The image was built.
    pub const BUILD_SUCCESS: &str = "BuildSuccess";
    /// The image build was cancelled because a newer image is needed.
    pub const BUILD_INTERRUPTED: &str = "BuildInterrupted";
}

/// Conditions of a ControllerConfig.
pub mod controller_config {
    /// The templates are being rendered.
    pub const RUNNING: &str = "TemplateControllerRunning";
    /// The templates were rendered.
    pub const COMPLETED: &str = "TemplateControllerCompleted";
    /// The templates could not be rendered.
    pub const FAILING: &str = "TemplateControllerFailing";
}

/// Conditions of a MachineConfigNode: the steps of an update.
pub mod node {
    /// The change was found to be possible.
    pub const UPDATE_PREPARED: &str = "UpdatePrepared";
    /// The change was made.
    pub const UPDATE_EXECUTED: &str = "UpdateExecuted";
    /// The actions that the change requires have been completed.
    pub const UPDATE_POST_ACTION_COMPLETE: &str = "UpdatePostActionComplete";
    /// The update is complete.
    pub const UPDATE_COMPLETE: &str = "UpdateComplete";
    /// The machine has the desired configuration.
    pub const UPDATED: &str = "Updated";
    /// The machine runs normally again after the change.
    pub const RESUMED: &str = "Resumed";
    /// The pods of the machine were evicted.
    pub const DRAINED: &str = "Drained";
    /// Files and operating system were changed.
    pub const APPLIED_FILES_AND_OS: &str = "AppliedFilesAndOS";
    /// The machine accepts no new pods.
    pub const CORDONED: &str = "Cordoned";
    /// The machine accepts pods again.
    pub const UNCORDONED: &str = "Uncordoned";
    /// The machine was rebooted.
    pub const REBOOTED_NODE: &str = "RebootedNode";
    /// The update failed.
    pub const NODE_DEGRADED: &str = "NodeDegraded";
    /// Pinned images are being pulled.
    pub const PINNED_IMAGE_SETS_PROGRESSING: &str = "PinnedImageSetsProgressing";
    /// Pinned images could not be pulled.
    pub const PINNED_IMAGE_SETS_DEGRADED: &str = "PinnedImageSetsDegraded";
}

/// Conditions of the objects that MachineConfigs are generated from: KubeletConfig,
/// ContainerRuntimeConfig, mirrors, Image.
pub mod settings {
    /// The settings were applied.
    pub const SUCCESS: &str = "Success";
    /// The settings could not be applied.
    pub const FAILURE: &str = "Failure";
    /// Some settings have no effect, or another one than MCO's: the message names them. Not in MCO.
    pub const WARNING: &str = "Warning";
    /// An image policy is not, or not completely, in effect.
    pub const PENDING: &str = "Pending";
}
