//! The kit's cluster: the API alone.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use machinist_e2e::{Cluster, block_on, measurements};
use serde_json::json;

#[test]
fn the_api_starts_responds_and_distinguishes_users() {
    let cluster = measurements::measure("cluster-api-start", Cluster::start).unwrap();
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "greeting"}, "data": {"hello": "world"},
    }))
    .unwrap();
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), "default");
    block_on(maps.create(&PostParams::default(), &map)).unwrap();
    let data =
        cluster.kubectl(&["get", "configmap", "greeting", "-o", "jsonpath={.data.hello}"]).unwrap();
    assert_eq!(data, "world");

    let stranger = cluster.client_as("stranger", &["nobody"]).unwrap();
    let refused = block_on(Api::<ConfigMap>::namespaced(stranger, "default").get("greeting"));
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    assert_eq!(cluster.token("default", "robot").unwrap().split('.').count(), 3);
}

#[test]
fn the_published_crds_install_and_serve() {
    let cluster = Cluster::start().unwrap();
    cluster.install_published_crds().unwrap();
    let kinds = cluster
        .kubectl(&["api-resources", "--api-group=machineconfiguration.openshift.io", "-o", "name"])
        .unwrap();
    for kind in ["machineconfigs", "machineconfigpools", "controllerconfigs", "kubeletconfigs"] {
        assert!(kinds.contains(kind), "{kind} is missing in {kinds}");
    }
}
