//! The API kinds: what administrators write, and what the components exchange.
//!
//! The kinds of the group `machineconfiguration.openshift.io` are here. Those that configure the
//! operator are in [`operator`], and those of the cluster that Machinist only reads are in
//! [`config`].
//!
//! Two rules hold for every type. Reading is lenient: a field that the schema requires may be
//! missing, so that a half-written manifest can be read and checked. And nothing is lost: fields
//! that a type does not name are kept in its `other` map and written back.

pub mod config;
pub mod crds;
pub mod names;
pub mod operator;
pub mod selector;

mod condition;
mod container_runtime_config;
mod controller_config;
mod embedded;
mod internal_release_image;
mod kubelet_config;
mod machine_config;
mod machine_config_node;
mod machine_config_pool;
mod machine_os_build;
mod machine_os_config;
mod node_names;
mod nullable;
mod os_image_stream;
mod pinned_image_set;
mod quantity;
mod reference;
mod rules;
mod schema;
mod secret;
mod tls_profile;

pub use condition::{Condition, find_condition, set_condition};
pub use container_runtime_config::{
    AdditionalStore, ContainerRuntimeConfig, ContainerRuntimeConfigSpec,
    ContainerRuntimeConfigStatus, ContainerRuntimeConfiguration,
};
pub use controller_config::{
    ControllerCertificate, ControllerConfig, ControllerConfigSpec, ControllerConfigStatus,
    ImageRegistryBundle, NetworkInfo,
};
pub use embedded::Embedded;
pub use internal_release_image::{
    AvailableRelease, InternalReleaseImage, InternalReleaseImageSpec, InternalReleaseImageStatus,
    LocalRelease, ReleaseReference,
};
pub use kubelet_config::{KubeletConfig, KubeletConfigSpec, KubeletConfigStatus};
pub use machine_config::{MachineConfig, MachineConfigSpec};
pub use machine_config_node::{
    ConfigImageStatus, ConfigVersionStatus, DesiredConfigImage, DesiredConfigVersion,
    IrreconcilableChange, MachineConfigNode, MachineConfigNodeSpec, MachineConfigNodeStatus,
    NodeInternalReleaseImage, NodePinnedImageSet,
};
pub use machine_config_pool::{
    CertExpiry, MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus,
    OSImageStreamReference, PinnedImageSetRef, PoolConfiguration, PoolSynchronizerStatus,
};
pub use machine_os_build::{
    MachineOSBuild, MachineOSBuildSpec, MachineOSBuildStatus, MachineOSBuilderReference,
};
pub use machine_os_config::{
    MachineOSConfig, MachineOSConfigSpec, MachineOSConfigStatus, MachineOSContainerfile,
    MachineOSImageBuilder,
};
pub use node_names::{NodeNamePatterns, NodeNamesError};
pub use nullable::{Nullable, UnknownFields};
pub use operator::{ImageContentSourcePolicy, MachineConfiguration};
pub use os_image_stream::{
    OSImageStream, OSImageStreamSet, OSImageStreamSpec, OSImageStreamStatus,
};
pub use pinned_image_set::{PinnedImage, PinnedImageSet, PinnedImageSetSpec};
pub use quantity::{InvalidQuantity, Quantity, QuantityValue};
pub use reference::{NameReference, ResourceReference};
pub use secret::SecretBytes;
pub use tls_profile::{CustomTLSProfile, PredefinedTLSProfile, TLSSecurityProfile};
