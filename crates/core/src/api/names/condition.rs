//! Condition types, by the kind that they are found on.

/// Conditions of a MachineConfigPool.
pub mod pool {
    /// All the machines have the wanted configuration.
    pub const UPDATED: &str = "Updated";
    /// A change is being rolled out.
    pub const UPDATING: &str = "Updating";
    /// One of the other degraded conditions holds.
    pub const DEGRADED: &str = "Degraded";
    /// A machine could not be updated.
    pub const NODE_DEGRADED: &str = "NodeDegraded";
    /// The configuration could not be rendered.
    pub const RENDER_DEGRADED: &str = "RenderDegraded";
    /// The image could not be built.
    pub const IMAGE_BUILD_DEGRADED: &str = "ImageBuildDegraded";
    /// Images could not be fetched beforehand.
    pub const PINNED_IMAGE_SETS_DEGRADED: &str = "PinnedImageSetsDegraded";
    /// A task beside the configuration failed.
    pub const POOL_SYNCHRONIZER_DEGRADED: &str = "PoolSynchronizerDegraded";
    /// Something keeps the rollout from going on that the real system would only log. Our own.
    pub const ROLLOUT_BLOCKED: &str = "RolloutBlocked";
    /// An object that MachineConfigs are generated from cannot be carried out; what was generated
    /// before stays. Our own.
    pub const GENERATE_DEGRADED: &str = "GenerateDegraded";
    /// A person and a generator write the same file; the message says who wins. Our own.
    pub const GENERATED_OVERRIDDEN: &str = "GeneratedOverridden";
    /// An image build waits to be started.
    pub const BUILD_PENDING: &str = "BuildPending";
    /// An image is being built.
    pub const BUILDING: &str = "Building";
    /// The image was built.
    pub const BUILD_SUCCESS: &str = "BuildSuccess";
    /// The image build failed.
    pub const BUILD_FAILED: &str = "BuildFailed";
    /// The image build was given up because something newer is wanted.
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
    /// What a change asks for after it was made has been done.
    pub const UPDATE_POST_ACTION_COMPLETE: &str = "UpdatePostActionComplete";
    /// The update is complete.
    pub const UPDATE_COMPLETE: &str = "UpdateComplete";
    /// The machine has the wanted configuration.
    pub const UPDATED: &str = "Updated";
    /// The machine works again after the change.
    pub const RESUMED: &str = "Resumed";
    /// The pods of the machine were moved away.
    pub const DRAINED: &str = "Drained";
    /// Files and operating system were changed.
    pub const APPLIED_FILES_AND_OS: &str = "AppliedFilesAndOS";
    /// Files were changed.
    pub const APPLIED_FILES: &str = "AppliedFiles";
    /// The operating system image was changed.
    pub const APPLIED_OS_IMAGE: &str = "AppliedOSImage";
    /// The operating system image was fetched.
    pub const IMAGE_PULLED_FROM_REGISTRY: &str = "ImagePulledFromRegistry";
    /// The machine takes no new pods.
    pub const CORDONED: &str = "Cordoned";
    /// The machine takes pods again.
    pub const UNCORDONED: &str = "Uncordoned";
    /// The machine was restarted.
    pub const REBOOTED_NODE: &str = "RebootedNode";
    /// The update failed.
    pub const NODE_DEGRADED: &str = "NodeDegraded";
    /// Images are being fetched beforehand.
    pub const PINNED_IMAGE_SETS_PROGRESSING: &str = "PinnedImageSetsProgressing";
    /// Images could not be fetched beforehand.
    pub const PINNED_IMAGE_SETS_DEGRADED: &str = "PinnedImageSetsDegraded";
    /// The release images that the machine serves are not complete.
    pub const INTERNAL_RELEASE_IMAGE_DEGRADED: &str = "InternalReleaseImageDegraded";
}

/// Conditions of the objects that MachineConfigs are generated from: KubeletConfig,
/// ContainerRuntimeConfig, mirrors, Image.
pub mod settings {
    /// The settings were taken up.
    pub const SUCCESS: &str = "Success";
    /// The settings could not be taken up.
    pub const FAILURE: &str = "Failure";
    /// An image policy is not, or not wholly, in effect.
    pub const PENDING: &str = "Pending";
}

/// Conditions of a MachineOSBuild.
pub mod build {
    /// The build is ready to start.
    pub const PREPARED: &str = "Prepared";
    /// The image is being built.
    pub const BUILDING: &str = "Building";
    /// The image was built.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The build failed.
    pub const FAILED: &str = "Failed";
    /// The build was given up because something newer is wanted.
    pub const INTERRUPTED: &str = "Interrupted";
}

/// Conditions of the MachineConfiguration.
pub mod machine_configuration {
    /// Boot images are being replaced.
    pub const BOOT_IMAGE_UPDATE_PROGRESSING: &str = "BootImageUpdateProgressing";
    /// Boot images could not be replaced.
    pub const BOOT_IMAGE_UPDATE_DEGRADED: &str = "BootImageUpdateDegraded";
}
