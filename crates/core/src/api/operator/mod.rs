//! The objects of `operator.openshift.io`: settings of the operator.

mod boot_images;
mod disruption_policy;
mod image_content_source_policy;
mod machine_configuration;

pub use boot_images::{
    BootImageSkewEnforcement, BootImageSkewEnforcementStatus, BootImageVersions, MachineManager,
    MachineManagerSelection, ManagedBootImages, ManualBootImageVersion, PartialSelection,
};
pub use disruption_policy::{
    DisruptionAction, DisruptionActionType, FileDisruptionPolicy, NodeDisruptionPolicy,
    NodeDisruptionPolicyStatus, ServiceReference, SshKeyDisruptionPolicy, UnitDisruptionPolicy,
};
pub use image_content_source_policy::{
    ImageContentSourcePolicy, ImageContentSourcePolicySpec, ImageContentSourcePolicyStatus,
    RepositoryDigestMirrors,
};
pub use machine_configuration::{
    IrreconcilableValidationOverrides, MachineConfiguration, MachineConfigurationSpec,
    MachineConfigurationStatus,
};
