//! Patches without a resourceVersion succeed however many clients write the same object.
use http::StatusCode;
use machinist_hub::auth::UserInfo;
use serde_json::json;

use crate::support::{TestHub, send};

const PATCHES: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn patches_of_one_object_never_conflict() {
    let server = TestHub::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    assert_eq!(server.send("POST", maps, &[], map).await.0, StatusCode::CREATED);
    let writers: Vec<_> = (0..64)
        .map(|writer| {
            let router = server.hub.router_as(UserInfo::admin());
            tokio::spawn(async move {
                for step in 0..PATCHES {
                    let field = format!("w{writer}");
                    let patch = json!({"data": {field: step.to_string()}});
                    let (path, kind, body) = if writer % 8 == 0 {
                        let path = format!("{maps}/a?fieldManager=w{writer}");
                        let mut body = patch;
                        body["apiVersion"] = json!("v1");
                        body["kind"] = json!("ConfigMap");
                        body["metadata"] = json!({"name": "a"});
                        (path, "application/apply-patch+yaml", body)
                    } else {
                        (format!("{maps}/a"), "application/merge-patch+json", patch)
                    };
                    let headers = [("content-type", kind)];
                    let (code, body) =
                        send(router.clone(), "PATCH", &path, &headers, body.to_string()).await;
                    assert_eq!(code, StatusCode::OK, "{body}");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let (_, map) = server.send("GET", &format!("{maps}/a"), &[], String::new()).await;
    let data = map["data"].as_object().unwrap();
    assert_eq!(data.len(), 64);
    assert!(data.values().all(|value| *value == json!((PATCHES - 1).to_string())), "{data:?}");
}
