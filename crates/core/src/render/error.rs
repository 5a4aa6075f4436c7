//! Errors of rendering.

use crate::api::names::annotation::machinist::OS_IMAGE;
use crate::api::selector::SelectorError;

use crate::go::yaml::GoYamlError;
use crate::ignition::unpacked_size::UnpackedTooLarge;
use crate::on_change::OnChangeError;
use crate::validate::MachineConfigProblem;

/// Why a pool cannot be rendered. Every variant names the object at fault.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The pool's selector is invalid.
    #[error("MachineConfigPool {pool}: spec.machineConfigSelector: {source}")]
    InvalidSelector {
        /// The pool.
        pool: String,
        /// What is wrong with it.
        source: SelectorError,
    },
    /// The pool's selector is empty.
    #[error(
        "MachineConfigPool {pool}: spec.machineConfigSelector is empty: a non-empty selector is required, for example matchLabels with machineconfiguration.openshift.io/role: {pool}"
    )]
    EmptySelector {
        /// The pool.
        pool: String,
    },
    /// The selector matches no MachineConfig.
    #[error(
        "couldn't find any MachineConfigs for pool: {pool} (none of the {given} given has labels that spec.machineConfigSelector matches)"
    )]
    NothingSelected {
        /// The pool.
        pool: String,
        /// How many MachineConfigs exist.
        given: usize,
    },
    /// A MachineConfig has no labels.
    #[error("cannot find label in MachineConfig {machine_config}")]
    NoLabels {
        /// The MachineConfig.
        machine_config: String,
    },
    /// A MachineConfig is not valid.
    #[error("MachineConfig {machine_config}: {source}")]
    Invalid {
        /// The MachineConfig.
        machine_config: String,
        /// What is wrong with it.
        source: MachineConfigProblem,
    },
    /// The contents of all files of the pool exceed a limit.
    #[error("the MachineConfigs of pool {pool} together: spec.config: {source}")]
    UnpackedTooLarge {
        /// The pool.
        pool: String,
        /// The file that exceeds the limit.
        source: UnpackedTooLarge,
    },
    /// The extension kernel-devel works only with the default kernel.
    #[error(
        "installing kernel-devel extension is not supported with kernelType: {kernel_type} (extension from MachineConfig {extension_from}, kernel from MachineConfig {kernel_from})"
    )]
    KernelDevel {
        /// The kernel type.
        kernel_type: String,
        /// The MachineConfig with the extension.
        extension_from: String,
        /// The MachineConfig with the kernel type.
        kernel_from: String,
    },
    /// A MachineConfig and the pool's stream both choose the OS image.
    #[error(
        "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously (osImageURL from MachineConfig {machine_config}; remove one of the two)"
    )]
    ImageAndStream {
        /// The MachineConfig that sets the image.
        machine_config: String,
    },
    /// A MachineConfig and the pool's annotation both choose the OS image.
    #[error(
        "cannot override MachineConfig osImageURL and set MachineConfigPool annotation {OS_IMAGE} simultaneously (osImageURL from MachineConfig {machine_config}, annotation of MachineConfigPool {pool}; remove one of the two)"
    )]
    ImageAndAnnotation {
        /// The MachineConfig that sets the image.
        machine_config: String,
        /// The pool with the annotation.
        pool: String,
    },
    /// The pool's annotation and its stream both choose the OS image.
    #[error(
        "cannot set MachineConfigPool annotation {OS_IMAGE} and MachineConfigPool spec.osImageStream.name simultaneously (MachineConfigPool {pool}, stream {stream}; remove one of the two)"
    )]
    AnnotationAndStream {
        /// The pool.
        pool: String,
        /// The stream.
        stream: String,
    },
    /// The annotation is not an image reference.
    #[error(
        "MachineConfigPool {pool}: metadata.annotations: {OS_IMAGE}: {image:?}: {reason} (write REGISTRY/NAME@sha256:DIGEST or REGISTRY/NAME:TAG, or remove the annotation: then the machines get the image of the system)"
    )]
    InvalidImageAnnotation {
        /// The pool.
        pool: String,
        /// The value.
        image: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A pool names a stream, but there is no OSImageStream.
    #[error(
        "could not get OSImageStream for pool {pool}: osimagestream.machineconfiguration.openshift.io \"cluster\" not found (create it with its status, or remove spec.osImageStream from the pool)"
    )]
    NoStreams {
        /// The pool.
        pool: String,
    },
    /// A pool names an unknown stream.
    #[error(
        "could not get OSImageStreamSet for pool {pool}: osimagestreams.machineconfiguration.openshift.io {stream:?} not found ({}; name one of them in spec.osImageStream.name of the pool, or add it to status.availableStreams of OSImageStream cluster)", list_streams(.there)
    )]
    UnknownStream {
        /// The pool.
        pool: String,
        /// The stream.
        stream: String,
        /// The known streams.
        there: Vec<String>,
    },
    /// What an administrator says that a change costs cannot be used.
    #[error("{object}: {source}")]
    OnChange {
        /// The MachineConfig or the pool.
        object: String,
        /// What is wrong with it.
        source: OnChangeError,
    },
    /// The config has no YAML form in Go. The name is a hash over that YAML, so MCO could not name it.
    #[error("the rendered config cannot be written: {refusal} (remove it from the MachineConfigs)")]
    UnrepresentableInYaml {
        /// Why.
        refusal: GoYamlError,
    },
    /// The result is larger than the API can store.
    #[error(
        "rendered MachineConfig {name} is too large ({size} bytes, max {max} bytes). This will exceed etcd's size limit. Consider reducing the number or size of MachineConfigs, particularly large registry mirror configurations (ImageDigestMirrorSet/ImageContentSourcePolicy)"
    )]
    TooLarge {
        /// The name it would have.
        name: String,
        /// Its size.
        size: usize,
        /// The largest size.
        max: usize,
    },
}

impl RenderError {
    /// Whether the OSImageStream is at fault. MCO reports such errors without the usual prefix.
    #[must_use]
    pub fn is_about_streams(&self) -> bool {
        matches!(self, Self::NoStreams { .. } | Self::UnknownStream { .. })
    }
}

/// The known streams as text.
fn list_streams(there: &[String]) -> String {
    if there.is_empty() {
        "its status names no streams".to_owned()
    } else {
        format!("streams there: {}", there.join(", "))
    }
}
