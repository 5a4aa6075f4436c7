//! Annotations.

// On machines (Nodes).

/// The rendered config that a machine has. Written by its daemon.
pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// The rendered config that a machine is to have. Written by the controller.
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
/// The image that a machine runs, when its pool builds images. Written by its daemon.
pub const CURRENT_IMAGE: &str = "machineconfiguration.openshift.io/currentImage";
/// The image that a machine is to run, when its pool builds images. Written by the controller.
pub const DESIRED_IMAGE: &str = "machineconfiguration.openshift.io/desiredImage";
/// The rendered config that a machine started its life with.
pub const FIRST_PIVOT_CONFIG: &str = "machineconfiguration.openshift.io/firstPivotConfig";
/// What a machine is doing; see [`state`](super::state). Written by its daemon.
pub const STATE: &str = "machineconfiguration.openshift.io/state";
/// Why a machine is degraded, or empty. Written by its daemon.
pub const REASON: &str = "machineconfiguration.openshift.io/reason";
/// What a machine does after the change: `Rebooting` just before it restarts.
pub const POST_CONFIG_ACTION: &str = "machineconfiguration.openshift.io/post-config-action";
/// What a machine asks the drain controller for: `drain-<config>` or `uncordon-<config>`.
pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
/// The last request in [`DESIRED_DRAIN`] that the drain controller carried out.
pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";
/// The shape of the control plane, for the daemon. Written by the controller.
pub const CONTROL_PLANE_TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
/// The version of the ControllerConfig whose certificates a machine has.
pub const LAST_SYNCED_CONTROLLER_CONFIG: &str =
    "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion";
/// The value of [`SERVICE_CA_ROTATE`] that a machine last saw.
pub const LAST_OBSERVED_SERVER_CA: &str =
    "machineconfiguration.openshift.io/lastObservedServerCAAnnotation";
/// Why the staged operating system could not be put in place at the last restart, or empty.
pub const OSTREE_FINALIZE_STAGED_FAILURE: &str =
    "machineconfiguration.openshift.io/ostree-finalize-staged-failure";
/// There once a new machine has been given the labels of its custom pool.
pub const CUSTOM_POOL_LABELS_APPLIED: &str =
    "machineconfiguration.openshift.io/customPoolLabelsApplied";

// On MachineConfigs and on the objects that they are made from.

/// The version of the controller that made an object.
pub const GENERATED_BY_CONTROLLER_VERSION: &str =
    "machineconfiguration.openshift.io/generated-by-controller-version";
/// The release that the controller which made an object belongs to.
pub const RELEASE_IMAGE_VERSION: &str = "machineconfiguration.openshift.io/release-image-version";
/// `true` on a rendered config whose operating system image an administrator chose.
pub const OS_IMAGE_URL_OVERRIDDEN: &str =
    "machineconfiguration.openshift.io/os-image-url-overridden";
/// The image of the pool's own that rides with a config in the daemon's memory.
pub const LAYERED_IMAGE: &str = "machineconfiguration.openshift.io/ocl-osimageurl";
/// An image that was built elsewhere and is to be taken as it is.
pub const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";
/// The ending of the name of the MachineConfig that is made from a KubeletConfig or a
/// ContainerRuntimeConfig.
pub const MC_NAME_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";

// On the ControllerConfig.

/// The version of the operator that wrote the ControllerConfig; a controller of another version
/// ignores it.
pub const GENERATED_BY_VERSION: &str = "machineconfiguration.openshift.io/generated-by-version";
/// `true` while the certificates of the API server are being replaced.
pub const SERVICE_CA_ROTATE: &str = "machineconfiguration.openshift.io/service-ca-rotate";

// On other objects.

/// The release image that an OSImageStream was made from.
pub const RELEASE_PAYLOAD_IMAGE: &str = "machineconfiguration.openshift.io/release-payload-image";
/// The build that the image of a MachineOSConfig comes from.
pub const CURRENT_MACHINE_OS_BUILD: &str =
    "machineconfiguration.openshift.io/current-machine-os-build";
/// Asks for the image of a MachineOSConfig to be built again.
pub const REBUILD: &str = "machineconfiguration.openshift.io/rebuild";
/// The secret that the image of a MachineOSBuild is pushed with.
pub const RENDERED_IMAGE_PUSH_SECRET: &str =
    "machineconfiguration.openshift.io/rendered-image-push-secret";
/// The version that the first-boot configuration of new machines was brought to.
pub const STUB_IGNITION_UPGRADED_TO: &str =
    "machineconfiguration.openshift.io/stub-ignition-upgraded-to";
/// When the first-boot configuration of new machines was brought to that version.
pub const STUB_IGNITION_UPGRADED_AT: &str =
    "machineconfiguration.openshift.io/stub-ignition-upgraded-at";
/// When the replacement of boot images was switched on by default.
pub const BOOT_IMAGE_UPDATES_OPTED_IN_AT: &str =
    "machineconfiguration.openshift.io/boot-image-updates-opted-in-at";

/// Annotations of our own. An administrator writes those that say how a pool is rolled out; see
/// `docs/rollout.md`.
pub mod machinist {
    // On pools, written by an administrator.

    /// How many machines of a pool get a new config before all others.
    pub const CANARY: &str = "machinist.dev/canary";
    /// How long those machines have to be well on it before the others go: `30m`, `2h`.
    pub const CANARY_SOAK: &str = "machinist.dev/canary-soak";
    /// When machines may be changed: `Sat,Sun 02:00-05:00 Europe/Berlin; 22:00-01:00 UTC`.
    pub const MAINTENANCE_WINDOW: &str = "machinist.dev/maintenance-window";
    /// On a pool: `immediate` or `deferred`. On a machine, written by the controller together with
    /// the config: `deferred`, when the machine has to wait for [`RESTART`] before it restarts.
    pub const REBOOT: &str = "machinist.dev/reboot";
    /// How many machines may fail on a config before its rollout stops.
    pub const MAX_FAILURES: &str = "machinist.dev/max-failures";
    /// Configs that nobody gets, separated by commas. The controller adds to it; a person takes out
    /// of it.
    pub const BAD_CONFIGS: &str = "machinist.dev/bad-configs";
    /// The operating system image of a pool, in the place of the system's. A tag is pinned. Custom pools
    /// without one of their own follow that of the pool `worker`.
    pub const OS_IMAGE: &str = "machinist.dev/os-image";

    // On machines (Nodes), written by an administrator.

    /// What happens when a machine is not as its config says: `report` (the default) or `heal`.
    pub const DRIFT: &str = "machinist.dev/drift";
    /// A config that the machine has gone back from because it was not well on it, and that it is to
    /// try once more. The daemon takes it away when it does.
    pub const RETRY: &str = "machinist.dev/retry";

    // On pools, written by `machinist rollback`.

    /// What the sources of a pool made when it was rolled back.
    pub const ROLLED_BACK_FROM: &str = "machinist.dev/rolled-back-from";
    /// The rendered config that the machines of a pool that was rolled back get instead.
    pub const ROLLED_BACK_TO: &str = "machinist.dev/rolled-back-to";

    // On pools, written by the controller for itself.

    /// How far the first machines are: `<config> soaking <time>` or `<config> passed`.
    pub const CANARY_STATE: &str = "machinist.dev/canary-state";
    /// Who had failed when a config was found to be bad: `<config> <machine>,<machine>`. They are
    /// not counted again once a person has taken the config out of [`BAD_CONFIGS`].
    pub const FAILED_MACHINES: &str = "machinist.dev/failed-machines";

    // On the ControllerConfig.

    /// The templates that machines start from; `none` where a pool may have nothing to render. Written by the operator.
    pub const PROFILE: &str = "machinist.dev/profile";

    // On MachineConfigs.

    /// On a rendered config whose image is named by a tag: the image by its digest, as the registry said
    /// when the config was made. Machines take this one.
    pub const OS_IMAGE_PINNED: &str = "machinist.dev/os-image-pinned";
    /// The objects that `machinist generate` made a MachineConfig from.
    pub const GENERATED_FROM: &str = "machinist.dev/generated-from";

    // On machines.

    /// Since when a machine is being drained, so that a controller that starts anew knows.
    pub const DRAIN_STARTED: &str = "machinist.dev/drain-started";
    /// The config that a machine has applied all but for a restart. Written by its daemon.
    pub const REBOOT_PENDING: &str = "machinist.dev/restart-pending";
    /// The config for whose sake a machine may restart. Written by the controller, or by a person
    /// through `machinist reboot`.
    pub const REBOOT_APPROVED: &str = "machinist.dev/restart";
}
