//! The kinds that are collected. Fixed paths instead of discovery: they work even if half of the API server is broken.

/// A kind that is collected.
#[derive(Debug)]
pub(super) struct CollectedKind {
    /// What it is called in the archive.
    pub(super) name: &'static str,
    /// The kind of its objects.
    pub(super) kind: &'static str,
    /// Where they are listed.
    pub(super) path: &'static str,
}

impl CollectedKind {
    /// The API version of its objects, out of the path.
    pub(super) fn api_version(&self) -> String {
        let words: Vec<&str> = self.path.split('/').collect();
        match words.as_slice() {
            ["", "api", version, ..] => (*version).to_owned(),
            ["", "apis", group, version, ..] => format!("{group}/{version}"),
            _ => String::new(),
        }
    }
}

macro_rules! kinds {
    ($($name:literal $kind:literal $path:literal,)*) => {
        &[$(CollectedKind { name: $name, kind: $kind, path: $path },)*]
    };
}

/// All of them. Secrets are not among them.
pub(super) const KINDS: &[CollectedKind] = kinds![
    "machineconfigpools" "MachineConfigPool" "/apis/machineconfiguration.openshift.io/v1/machineconfigpools",
    "machineconfigs" "MachineConfig" "/apis/machineconfiguration.openshift.io/v1/machineconfigs",
    "machineconfignodes" "MachineConfigNode" "/apis/machineconfiguration.openshift.io/v1/machineconfignodes",
    "controllerconfigs" "ControllerConfig" "/apis/machineconfiguration.openshift.io/v1/controllerconfigs",
    "kubeletconfigs" "KubeletConfig" "/apis/machineconfiguration.openshift.io/v1/kubeletconfigs",
    "containerruntimeconfigs" "ContainerRuntimeConfig" "/apis/machineconfiguration.openshift.io/v1/containerruntimeconfigs",
    "machineosconfigs" "MachineOSConfig" "/apis/machineconfiguration.openshift.io/v1/machineosconfigs",
    "machineosbuilds" "MachineOSBuild" "/apis/machineconfiguration.openshift.io/v1/machineosbuilds",
    "osimagestreams" "OSImageStream" "/apis/machineconfiguration.openshift.io/v1/osimagestreams",
    "pinnedimagesets" "PinnedImageSet" "/apis/machineconfiguration.openshift.io/v1/pinnedimagesets",
    "machineconfigurations" "MachineConfiguration" "/apis/operator.openshift.io/v1/machineconfigurations",
    "imagecontentsourcepolicies" "ImageContentSourcePolicy" "/apis/operator.openshift.io/v1alpha1/imagecontentsourcepolicies",
    "imagedigestmirrorsets" "ImageDigestMirrorSet" "/apis/config.openshift.io/v1/imagedigestmirrorsets",
    "imagetagmirrorsets" "ImageTagMirrorSet" "/apis/config.openshift.io/v1/imagetagmirrorsets",
    "clusterimagepolicies" "ClusterImagePolicy" "/apis/config.openshift.io/v1/clusterimagepolicies",
    "imagepolicies" "ImagePolicy" "/apis/config.openshift.io/v1/imagepolicies",
    "images" "Image" "/apis/config.openshift.io/v1/images",
    "featuregates" "FeatureGate" "/apis/config.openshift.io/v1/featuregates",
    "nodesettings" "Node" "/apis/config.openshift.io/v1/nodes",
    "apiservers" "APIServer" "/apis/config.openshift.io/v1/apiservers",
    "infrastructures" "Infrastructure" "/apis/config.openshift.io/v1/infrastructures",
    "clusterversions" "ClusterVersion" "/apis/config.openshift.io/v1/clusterversions",
    "clusteroperators" "ClusterOperator" "/apis/config.openshift.io/v1/clusteroperators",
    "nodes" "Node" "/api/v1/nodes",
    "events" "Event" "/api/v1/events",
    "leases" "Lease" "/apis/coordination.k8s.io/v1/namespaces/openshift-machine-config-operator/leases",
    "pods" "Pod" "/api/v1/namespaces/openshift-machine-config-operator/pods",
    "deployments" "Deployment" "/apis/apps/v1/namespaces/openshift-machine-config-operator/deployments",
    "daemonsets" "DaemonSet" "/apis/apps/v1/namespaces/openshift-machine-config-operator/daemonsets",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_place_and_secrets_have_none() {
        let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
        assert!(KINDS.iter().all(|kind| kind.kind != "Secret" && !kind.path.contains("secrets")));
        assert_eq!(KINDS[0].api_version(), "machineconfiguration.openshift.io/v1");
        let nodes = KINDS.iter().find(|kind| kind.name == "nodes").unwrap();
        assert_eq!(nodes.api_version(), "v1");
    }
}
