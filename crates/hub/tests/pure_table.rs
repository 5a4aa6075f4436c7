//! Tables, compared with the rows of kube-apiserver.
use crate::pure;

use jiff::{SignedDuration, Timestamp};
use machinist_hub::json_path::JsonPath;
use machinist_hub::table::{IncludeObject, human_duration, table};
use serde_json::{Value, json};

#[test]
fn rows_match_kube_apiserver() {
    let mut wrong = 0;
    for case in pure::recorded("table.jsonl") {
        let objects = case["objects"].as_array().expect("objects");
        let now: Timestamp = case["now"].as_str().expect("a time").parse().expect("it is one");
        let own = case.get("crd").map(machinist_hub::built_in::from_crd).unwrap_or_default();
        let kind = own.first().unwrap_or_else(|| pure::kind_of(&case));
        let ours = table(kind, objects, json!({}), IncludeObject::None, now);
        // Ours may follow after those of MCO: `kubectl get mcp -o wide` shows what blocks a rollout.
        let recorded = case["columns"].as_array().expect("columns").len();
        let columns: Value = ours["columnDefinitions"]
            .as_array()
            .expect("columns")
            .iter()
            .take(recorded)
            .map(|column| {
                json!({"name": column["name"], "type": column["type"], "format": column["format"], "priority": column["priority"]})
            })
            .collect();
        assert_eq!(columns, case["columns"], "{}", kind.kind);
        let rows = ours["rows"].as_array().expect("rows");
        for (row, cells) in rows.iter().zip(case["cells"].as_array().expect("cells")) {
            assert_eq!(row["object"], Value::Null);
            if row["cells"].as_array().map(|own| &own[..recorded])
                != cells.as_array().map(Vec::as_slice)
            {
                wrong += 1;
                println!("{}\nours   {}\ntheirs {cells}", kind.kind, row["cells"]);
            }
        }
    }
    assert_eq!(wrong, 0, "rows differ");
}

#[test]
fn rows_include_the_requested_object() {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    let kind = pure::kind_of(&object);
    let made = |include| {
        let list = json!({"resourceVersion": "5"});
        let table =
            table(kind, std::slice::from_ref(&object), list, include, Timestamp::UNIX_EPOCH);
        assert_eq!(table["metadata"], json!({"resourceVersion": "5"}));
        assert_eq!(
            (&table["kind"], &table["apiVersion"]),
            (&json!("Table"), &json!("meta.k8s.io/v1"))
        );
        table["rows"][0]["object"].clone()
    };
    assert_eq!(made(IncludeObject::Object), object);
    assert_eq!(
        made(IncludeObject::Metadata),
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}})
    );
    assert_eq!(IncludeObject::parse(""), Some(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("Other"), None);
}

#[test]
fn durations_match_kubectl() {
    let table = [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (18_600, "5h10m"),
        (28_800, "8h"),
        (172_800, "2d"),
        (435_600, "5d1h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (70_000_000, "2y80d"),
        (252_288_000, "8y"),
    ];
    for (seconds, text) in table {
        assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text, "{seconds}");
    }
}

#[test]
fn json_paths() {
    let object = json!({
        "metadata": {"annotations": {"a.b/c": "dotted"}},
        "list": [{"t": "x", "n": 1}, {"t": "y", "n": 2, "on": true}, {"n": 3}],
    });
    let table = [
        (".metadata.annotations.a\\.b/c", json!(["dotted"])),
        (".metadata.annotations['a.b/c']", json!(["dotted"])),
        (".list[0].n", json!([1])),
        (".list[-1].n", json!([3])),
        (".list[7].n", json!([])),
        (".list[*].n", json!([1, 2, 3])),
        (".list[0:2].n", json!([1, 2])),
        (".list[?(@.t==\"y\")].n", json!([2])),
        (".list[?(@.t=='y')].n", json!([2])),
        (".list[?(@.t!=\"y\")].n", json!([1])),
        (".list[?(@.n>=2)].n", json!([2, 3])),
        (".list[?(@.on==true)].n", json!([2])),
        (".list[?(@.on)].n", json!([2])),
        (".none.at.all", json!([])),
        ("$.list[0].t", json!(["x"])),
        ("{.list[0].t}", json!(["x"])),
    ];
    for (path, wanted) in table {
        let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} is a path"));
        let found: Value = parsed.find(&object).into_iter().cloned().collect();
        assert_eq!(found, wanted, "{path}");
    }
    for bad in [".a[", ".a[?(@.b==)]", ".a[x]"] {
        assert_eq!(JsonPath::parse(bad), None, "{bad}");
    }
}
