//! Installing into a Kubernetes cluster: `deploy/`, the permissions of each component, the operator, and the whole
//! lifecycle on real nodes.
mod admission_policies;
mod bootstrap_token;
mod containerd_settings;
mod deleted;
mod existing_cluster;
mod helm;
mod image;
mod kubeadm_nodes;
mod lifecycle;
mod operator;
mod rbac;
mod repair_by_hand;
mod resource_requests;
pub(crate) mod support;
