//! Tests of `enrol`: tables of inputs and what must come out.

use super::*;

#[test]
fn each_request_gets_the_right_decision() {
    use EnrolmentState::{Approved, Denied, Pending};
    const HERE: usize = MAX_PENDING_PER_ADDRESS;
    for (state, has_token, can_wait, waiting, waiting_here, expected) in [
        (None, false, true, 0, 0, EnrolmentStep::RecordPending),
        (None, false, true, MAX_PENDING, HERE - 1, EnrolmentStep::ReplaceOldest),
        (None, false, true, HERE, HERE, EnrolmentStep::TooManyPending),
        (None, true, true, MAX_PENDING, HERE, EnrolmentStep::Approve),
        (None, true, false, 0, 0, EnrolmentStep::Approve),
        (None, false, false, 0, 0, EnrolmentStep::NeedsToken),
        (Some(Pending), false, true, MAX_PENDING, HERE, EnrolmentStep::Wait),
        (Some(Pending), true, true, 0, 0, EnrolmentStep::Approve),
        (Some(Approved), false, true, 0, 0, EnrolmentStep::Sign),
        (Some(Denied), true, true, 0, 0, EnrolmentStep::Deny),
    ] {
        let facts = EnrolmentFacts { state, has_token, can_wait, waiting, waiting_here };
        assert_eq!(decide_enrolment(facts), expected, "{facts:?}");
    }
}

#[test]
fn waiting_requests_are_counted_by_address_and_expire() {
    let request = |id: &str, address: &str, since| PendingRequest {
        id: id.to_owned(),
        address: address.to_owned(),
        since,
    };
    let now = 10_000;
    let old = now - PENDING_LIFETIME_SECONDS;
    let found = PendingRequests::new(
        vec![
            request("c", "10.0.0.1", now),
            request("b", "2001:db8::1", old),
            request("a", "10.0.0.1", old - 1),
            request("d", "2001:db8::2:0:0:1", now),
            request("e", "junk", now),
        ],
        now,
    );
    let ids = |all: &[PendingRequest]| -> Vec<String> {
        all.iter().map(|request| request.id.clone()).collect()
    };
    assert_eq!(ids(&found.expired), ["a"]);
    assert_eq!(ids(&found.waiting), ["b", "c", "d", "e"]);
    for (address, count) in
        [("10.0.0.1", 1), ("::ffff:10.0.0.1", 1), ("10.0.0.2", 0), ("2001:db8::9", 2)]
    {
        assert_eq!(found.count_from(address.parse().unwrap()), count, "{address}");
    }
}

#[test]
fn a_certificate_is_for_one_pool() {
    let (user, group) = subject("worker", "abc");
    assert_eq!(id_for_pool(&user, std::slice::from_ref(&group), "worker"), Some("abc"));
    assert_eq!(id_for_pool(&user, &[group], "master"), None);
    assert_eq!(id_for_pool("system:node:a", &["system:nodes".to_owned()], "worker"), None);
    assert_eq!(id_for_pool(&user, &[], "worker"), None);
}

#[test]
fn records_survive_a_round_trip() {
    let record = EnrolmentRecord {
        id: "abc".into(),
        pool: "worker".into(),
        name: "n1".into(),
        address: "10.0.0.1".into(),
        token: String::new(),
        state: EnrolmentState::Approved,
    };
    let name = format!("{SECRET_PREFIX}abc");
    assert_eq!(
        EnrolmentRecord::from_secret(&name, "approved", &record.to_secret_data()),
        Some(record.clone())
    );
    // A mistyped label admits nobody.
    let odd = EnrolmentRecord::from_secret(&name, "Approved", &record.to_secret_data()).unwrap();
    assert_eq!(odd.state, EnrolmentState::Pending);
    assert_eq!(EnrolmentRecord::from_secret("other", "approved", &record.to_secret_data()), None);
}
