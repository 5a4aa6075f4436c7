//! Annotations.

// On machines (Nodes).

/// The rendered config that a machine has. Written by its daemon.
pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// The rendered config that a machine should have. Written by the controller.
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
/// The image that a machine runs, when its pool builds images. Written by its daemon.
pub const CURRENT_IMAGE: &str = "machineconfiguration.openshift.io/currentImage";
/// The image that a machine should run, when its pool builds images. Written by the controller.
pub const DESIRED_IMAGE: &str = "machineconfiguration.openshift.io/desiredImage";
/// The rendered config of a machine's first boot.
pub const FIRST_PIVOT_CONFIG: &str = "machineconfiguration.openshift.io/firstPivotConfig";
/// What a machine is doing; see [`state`](super::state). Written by its daemon.
pub const STATE: &str = "machineconfiguration.openshift.io/state";
/// Why a machine is degraded, or empty. Written by its daemon.
pub const REASON: &str = "machineconfiguration.openshift.io/reason";
/// What a machine does after a change: `Rebooting` just before it reboots.
pub const POST_CONFIG_ACTION: &str = "machineconfiguration.openshift.io/post-config-action";
/// What a machine requests from the drain controller: `drain-<config>` or `uncordon-<config>`.
pub const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
/// The last request in [`DESIRED_DRAIN`] that the drain controller completed.
pub const LAST_APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";
/// The topology of the control plane, for the daemon. Written by the controller.
pub const CONTROL_PLANE_TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
/// The resource version of the ControllerConfig whose certificates a machine has.
pub const LAST_SYNCED_CONTROLLER_CONFIG: &str =
    "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion";
/// Why the staged operating system could not be deployed at the last reboot, or empty.
pub const OSTREE_FINALIZE_STAGED_FAILURE: &str =
    "machineconfiguration.openshift.io/ostree-finalize-staged-failure";
/// Set once a new machine has received the labels of its custom pool.
pub const CUSTOM_POOL_LABELS_APPLIED: &str =
    "machineconfiguration.openshift.io/customPoolLabelsApplied";

// On MachineConfigs and on the objects that they are generated from.

/// The version of the controller that created an object.
pub const GENERATED_BY_CONTROLLER_VERSION: &str =
    "machineconfiguration.openshift.io/generated-by-controller-version";
/// The release of the controller that created an object.
pub const RELEASE_IMAGE_VERSION: &str = "machineconfiguration.openshift.io/release-image-version";
/// `true` on a rendered config whose operating system image was set by an administrator.
pub const OS_IMAGE_URL_OVERRIDDEN: &str =
    "machineconfiguration.openshift.io/os-image-url-overridden";
/// The pool's custom image, stored with a config in the daemon's state.
pub const LAYERED_IMAGE: &str = "machineconfiguration.openshift.io/ocl-osimageurl";
/// An image that was built elsewhere and is used unchanged.
pub const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";
/// The suffix of the name of the MachineConfig that is generated from a KubeletConfig or a
/// ContainerRuntimeConfig.
pub const MC_NAME_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";

// On the ControllerConfig.

/// The version of the operator that wrote the ControllerConfig; a controller of another version
/// ignores it.
pub const GENERATED_BY_VERSION: &str = "machineconfiguration.openshift.io/generated-by-version";

// On other objects.

/// The build that the image of a MachineOSConfig comes from.
pub const CURRENT_MACHINE_OS_BUILD: &str =
    "machineconfiguration.openshift.io/current-machine-os-build";

/// Machinist's own annotations. An administrator writes those that control a pool's rollouts; see
/// `docs/rollout.md`.
pub mod machinist {
    // On pools, written by an administrator.

    /// How many machines of a pool get a new config before all others.
    pub const CANARY: &str = "machinist.dev/canary";
    /// How long these machines must stay healthy on it before the others follow: `30m`, `2h`.
    pub const CANARY_SOAK: &str = "machinist.dev/canary-soak";
    /// When machines may be updated: `Sat,Sun 02:00-05:00 Europe/Berlin; 22:00-01:00 UTC`.
    pub const MAINTENANCE_WINDOW: &str = "machinist.dev/maintenance-window";
    /// On a pool: `immediate` or `deferred`. On a machine, written by the controller together with
    /// the config: `deferred` if the machine must wait for [`REBOOT_APPROVED`] before it reboots.
    pub const REBOOT: &str = "machinist.dev/reboot";
    /// How many machines may fail on a config before its rollout stops.
    pub const MAX_FAILURES: &str = "machinist.dev/max-failures";
    /// Configs that no machine gets, separated by commas. The controller adds configs; an
    /// administrator removes them.
    pub const BAD_CONFIGS: &str = "machinist.dev/bad-configs";
    /// The operating system image of a pool, instead of the default one. A tag is resolved to a
    /// digest. Custom pools without this annotation follow the pool `worker`.
    pub const OS_IMAGE: &str = "machinist.dev/os-image";
    /// On a pool or a machine: `observe` if machines report what their config would change and nothing
    /// is written to them, or `enforce` (the default). A machine's annotation comes before its pool's.
    pub const MODE: &str = "machinist.dev/mode";

    /// On a pool, or on a MachineConfig for its own files and units: what a change costs, such as
    /// `/etc/nginx: reload nginx.service`. Actions are `none`, `reload UNIT`, `restart UNIT`, `run COMMAND` and
    /// `reboot`; entries are separated by semicolons or newlines.
    pub const ON_CHANGE: &str = "machinist.dev/on-change";

    /// On a pool: the flags of `kubectl drain` for its machines, `--force` and `--delete-emptydir-data`. Without the
    /// annotation both are set; with it only those that it lists.
    pub const DRAIN_FLAGS: &str = "machinist.dev/drain-flags";

    /// On a pool: the machines that it takes by the names of their Nodes, such as `worker-*, edge-1`; `*` stands for any
    /// text. With a `nodeSelector` both must match.
    pub const NODE_NAMES: &str = "machinist.dev/node-names";

    // On rendered configs, written by the controller.

    /// The rules of [`ON_CHANGE`] of the pool and its MachineConfigs, as JSON.
    pub const ON_CHANGE_RULES: &str = "machinist.dev/on-change-rules";

    /// The MachineConfig that each file, unit and drop-in comes from, as JSON, unless that is long.
    pub const SOURCES: &str = "machinist.dev/sources";

    // On machines (Nodes), written by an administrator.

    /// What happens if a machine has drifted from its config: `report` (the default) or `heal`.
    pub const DRIFT: &str = "machinist.dev/drift";
    /// What happens to a path that drifts as often as it is healed: `report`, `stop-unit` or `degrade`
    /// (the default).
    pub const DRIFT_CONFLICT: &str = "machinist.dev/drift-conflict";
    /// A config that the machine rolled back because it was unhealthy on it, and that it should try
    /// once more. The daemon removes the annotation when it does.
    pub const RETRY: &str = "machinist.dev/retry";
    /// Leaves the machine alone: nothing is written to its disk and it does not reboot. The value says why.
    /// Written by `machinist hold`, removed by `machinist release`.
    pub const HOLD: &str = "machinist.dev/hold";
    /// Heals the drift of the machine once, whatever its policy. Written by `machinist heal`; the daemon
    /// removes it when it has tried.
    pub const HEAL: &str = "machinist.dev/heal";
    /// A reboot that was asked for: the boot ID that should end. Written by `machinist reboot`; the daemon
    /// removes it after the reboot.
    pub const REBOOT_REQUESTED: &str = "machinist.dev/reboot-requested";

    /// A request to the daemon, as JSON: what it is to report, and the key for which the report is encrypted.
    /// Written and removed by `machinist logs` and `machinist diff --live`.
    pub const REPORT_REQUEST: &str = "machinist.dev/report-request";

    /// On a pool or a machine: the binary that daemons should run, as JSON. Written by `machinist upgrade`, and by the
    /// controller on the machines of a pool whose turn it is. A machine cannot write it.
    pub const UPGRADE: &str = "machinist.dev/upgrade";

    // On pools, written by `machinist rollback`.

    /// The rendered config of a pool's MachineConfigs at the time of the rollback.
    pub const ROLLED_BACK_FROM: &str = "machinist.dev/rolled-back-from";
    /// The rendered config that the machines of a rolled back pool get instead.
    pub const ROLLED_BACK_TO: &str = "machinist.dev/rolled-back-to";

    // On pools, written by the controller as its own state.

    /// The progress of the first machines: `<config> soaking <time>` or `<config> passed`.
    pub const CANARY_STATE: &str = "machinist.dev/canary-state";
    /// The machines that had failed when a config was found to be bad: `<config>
    /// <machine>,<machine>`. They are not counted again once an administrator has removed the
    /// config from [`BAD_CONFIGS`].
    pub const FAILED_MACHINES: &str = "machinist.dev/failed-machines";

    // On the ControllerConfig.

    /// The base templates of the machines; `none` if a pool may have nothing to render. Written by
    /// the operator. On a generated or rendered MachineConfig: the templates it comes from. Machines
    /// that these are not for refuse it.
    pub const PROFILE: &str = "machinist.dev/profile";

    // On MachineConfigs.

    /// On a rendered config whose image is referenced by tag: the image by digest, as resolved when
    /// the config was rendered. Machines use this one.
    pub const OS_IMAGE_PINNED: &str = "machinist.dev/os-image-pinned";
    /// The objects that `machinist generate` generated a MachineConfig from.
    pub const GENERATED_FROM: &str = "machinist.dev/generated-from";

    // On MachineConfigNodes.

    /// The answer to [`REPORT_REQUEST`], as JSON. Written by the machine's daemon, and removed with the request.
    pub const REPORT: &str = "machinist.dev/report";

    // On machines.

    /// The version and the digest of the daemon of a machine, why it cannot upgrade itself, and why the last upgrade failed,
    /// as JSON. Written by its daemon.
    pub const DAEMON: &str = "machinist.dev/daemon";
    /// What the host of a machine can do, as JSON. Written by its daemon.
    pub const HOST: &str = "machinist.dev/host";
    /// The config that a machine in observe mode compares itself with. Written by the controller.
    pub const OBSERVED_CONFIG: &str = "machinist.dev/observed-config";
    /// What that config would change, and at what cost. Written by the machine's daemon.
    pub const OBSERVATION: &str = "machinist.dev/observation";
    /// When the drain of a machine began, so that a restarted controller knows.
    pub const DRAIN_STARTED: &str = "machinist.dev/drain-started";
    /// Which boot of which machine acts under the identity of a Node, and since when: `<boot id>
    /// <machine id> <milliseconds since 1970>`. Written by its daemon.
    pub const IDENTITY_CLAIM: &str = "machinist.dev/identity-claim";
    /// The paths that others have changed, as JSON: `path`, `kind` and, if known, `by`. Written by its daemon.
    pub const DRIFTED: &str = "machinist.dev/drifted";
    /// The desired config at the time of the failure that a degraded machine reports. Written by its daemon.
    pub const FAILED_CONFIG: &str = "machinist.dev/failed-config";
    /// The config that a machine has applied except for the reboot. Written by its daemon.
    pub const REBOOT_PENDING: &str = "machinist.dev/restart-pending";
    /// The config for which a machine may reboot. Written by the controller, or by an administrator
    /// with `machinist reboot`.
    pub const REBOOT_APPROVED: &str = "machinist.dev/restart";
}
