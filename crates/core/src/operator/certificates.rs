//! The server's certificate and the CA that signs it: decides the next step.
//!
//! A new CA is trusted before it is used: it is created and added to the bundle that machines get,
//! and only once machines had time to receive it, it signs the server's certificate. The old one
//! stays in the bundle until it expires.

/// A CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningCa {
    /// The certificate, as PEM.
    pub certificate: String,
    /// The start of its validity, in seconds since the epoch.
    pub not_before: i64,
    /// The end of its validity.
    pub not_after: i64,
}

/// A certificate in the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedCertificate {
    /// The certificate, as PEM.
    pub certificate: String,
    /// The end of its validity.
    pub not_after: i64,
}

/// The server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCertificate {
    /// Its names, sorted.
    pub names: Vec<String>,
    /// The start of its validity.
    pub not_before: i64,
    /// The end of its validity.
    pub not_after: i64,
    /// The certificate of the CA that signed it.
    pub signer: String,
}

/// The existing certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateState {
    /// The CA in use.
    pub current: Option<SigningCa>,
    /// The next CA.
    pub next: Option<SigningCa>,
    /// The bundle that machines trust.
    pub bundle: Vec<TrustedCertificate>,
    /// The server's certificate.
    pub serving: Option<ServerCertificate>,
}

/// The desired certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredCertificates {
    /// The names of the server.
    pub names: Vec<String>,
    /// How many seconds machines must have had a new CA before it is used.
    pub overlap: i64,
    /// Whether an administrator requested a new CA.
    pub rotate: bool,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateStep {
    /// Create the first CA.
    CreateCa,
    /// Create the next CA.
    CreateNextCa,
    /// Write this bundle.
    UpdateBundle(Vec<String>),
    /// Switch to the next CA.
    PromoteNextCa,
    /// Sign the server's certificate with the CA in use.
    SignServerCertificate,
}

/// The next step; `None` if nothing is left to do. The caller performs each step before it calls
/// this again.
#[must_use]
pub fn next_step(
    state: &CertificateState,
    wanted: &DesiredCertificates,
    now: i64,
) -> Option<CertificateStep> {
    let Some(current) = &state.current else { return Some(CertificateStep::CreateCa) };
    let trusted = bundle_certificates(state, now);
    if state.bundle.iter().map(|it| &it.certificate).ne(trusted.iter()) {
        return Some(CertificateStep::UpdateBundle(trusted));
    }
    match &state.next {
        None if wanted.rotate || needs_rotation(current, now) => {
            return Some(CertificateStep::CreateNextCa);
        }
        // An expired CA is useless, so the new one takes over at once.
        Some(next) if now - next.not_before >= wanted.overlap || current.not_after <= now => {
            return Some(CertificateStep::PromoteNextCa);
        }
        _ => {}
    }
    match &state.serving {
        Some(serving) if is_valid_serving(serving, current, wanted, now) => None,
        _ => Some(CertificateStep::SignServerCertificate),
    }
}

/// The contents of the bundle: its unexpired certificates, the CA in use, and the next one.
fn bundle_certificates(state: &CertificateState, now: i64) -> Vec<String> {
    let signers = state.current.iter().chain(&state.next);
    let in_use: Vec<String> = signers.map(|signer| signer.certificate.clone()).collect();
    let others =
        state.bundle.iter().filter(|it| it.not_after > now).map(|it| it.certificate.clone());
    let mut all: Vec<String> = others.chain(in_use).collect();
    all.sort();
    all.dedup();
    all
}

/// Whether less than a fifth of its validity is left.
fn needs_rotation(signer: &SigningCa, now: i64) -> bool {
    (signer.not_after - now) * 5 < signer.not_after - signer.not_before
}

fn is_valid_serving(
    serving: &ServerCertificate,
    current: &SigningCa,
    wanted: &DesiredCertificates,
    now: i64,
) -> bool {
    let is_young = (serving.not_after - now) * 3 >= serving.not_after - serving.not_before;
    let has_names = wanted.names.iter().all(|name| serving.names.contains(name));
    is_young && has_names && serving.signer == current.certificate
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: i64 = 24 * 60 * 60;

    /// Performs a step as the operator does.
    fn perform(
        state: &mut CertificateState,
        step: CertificateStep,
        names: &[String],
        now: i64,
        count: &mut u32,
    ) {
        let mut signer = || {
            *count += 1;
            Some(SigningCa {
                certificate: format!("ca{count:04}"),
                not_before: now,
                not_after: now + 3650 * DAY,
            })
        };
        match step {
            CertificateStep::CreateCa => state.current = signer(),
            CertificateStep::CreateNextCa => state.next = signer(),
            CertificateStep::UpdateBundle(all) => {
                let end = |certificate: &String| {
                    let signers = state.current.iter().chain(&state.next);
                    let mut known = signers.map(|it| (&it.certificate, it.not_after));
                    let known = known.find(|(it, _)| *it == certificate).map(|(_, to)| to);
                    let before = state.bundle.iter().find(|it| it.certificate == *certificate);
                    known.or(before.map(|it| it.not_after)).unwrap_or(i64::MAX)
                };
                let bundle = all
                    .into_iter()
                    .map(|it| TrustedCertificate { not_after: end(&it), certificate: it });
                state.bundle = bundle.collect();
            }
            CertificateStep::PromoteNextCa => state.current = state.next.take(),
            CertificateStep::SignServerCertificate => {
                let signer = state.current.as_ref().unwrap().certificate.clone();
                let names = names.to_vec();
                state.serving = Some(ServerCertificate {
                    names,
                    not_before: now,
                    not_after: now + 365 * DAY,
                    signer,
                });
            }
        }
    }

    fn settle(
        state: &mut CertificateState,
        wanted: &mut DesiredCertificates,
        now: i64,
        count: &mut u32,
    ) -> Vec<CertificateStep> {
        let mut steps = Vec::new();
        while let Some(step) = next_step(state, wanted, now) {
            assert!(steps.len() < 10, "{steps:?}");
            // The requested rotation is done.
            wanted.rotate &= step != CertificateStep::CreateNextCa;
            perform(state, step.clone(), &wanted.names, now, count);
            steps.push(step);
        }
        steps
    }

    #[test]
    fn the_first_certificate_is_created_and_then_nothing_changes() {
        let (mut state, mut count) = (CertificateState::default(), 0);
        let mut wanted =
            DesiredCertificates { names: vec!["a".into()], overlap: DAY, rotate: false };
        let steps = settle(&mut state, &mut wanted, 0, &mut count);
        assert_eq!(
            steps,
            [
                CertificateStep::CreateCa,
                CertificateStep::UpdateBundle(vec!["ca0001".into()]),
                CertificateStep::SignServerCertificate
            ]
        );
        assert_eq!(settle(&mut state, &mut wanted, DAY, &mut count), []);
        wanted.names = vec!["b".into()];
        assert_eq!(
            settle(&mut state, &mut wanted, DAY, &mut count),
            [CertificateStep::SignServerCertificate]
        );
        assert_eq!(
            settle(&mut state, &mut wanted, 260 * DAY, &mut count),
            [CertificateStep::SignServerCertificate]
        );
    }

    #[test]
    fn a_new_ca_is_trusted_a_day_before_it_signs() {
        let (mut state, mut count) = (CertificateState::default(), 0);
        let mut wanted =
            DesiredCertificates { names: vec!["a".into()], overlap: DAY, rotate: false };
        settle(&mut state, &mut wanted, 0, &mut count);
        wanted.rotate = true;
        let both = vec!["ca0001".to_owned(), "ca0002".to_owned()];
        let steps = settle(&mut state, &mut wanted, 100, &mut count);
        assert_eq!(steps, [CertificateStep::CreateNextCa, CertificateStep::UpdateBundle(both)]);
        assert_eq!(settle(&mut state, &mut wanted, 100 + DAY - 1, &mut count), []);
        let steps = settle(&mut state, &mut wanted, 100 + DAY, &mut count);
        assert_eq!(steps, [CertificateStep::PromoteNextCa, CertificateStep::SignServerCertificate]);
        assert_eq!(
            state.bundle.len(),
            2,
            "machines that have only the old CA still trust the server"
        );
    }

    proptest! {
        /// Over years, at any moment: the server's certificate is signed by a CA that machines
        /// trust, and that they have had for long enough.
        #[test]
        fn machines_always_trust_the_ca_that_signed(days in proptest::collection::vec((1i64..400, any::<bool>()), 1..60)) {
            let (mut state, mut count, mut now) = (CertificateState::default(), 0, 0);
            let mut wanted = DesiredCertificates { names: vec!["a".into()], overlap: DAY, rotate: false };
            let mut known: std::collections::BTreeMap<String, i64> = [].into();
            for (index, (pause, rotate)) in days.into_iter().enumerate() {
                wanted.rotate |= rotate && state.next.is_none();
                settle(&mut state, &mut wanted, now, &mut count);
                for it in &state.bundle {
                    known.entry(it.certificate.clone()).or_insert(now);
                }
                let serving = state.serving.as_ref().unwrap();
                let trusted = state.bundle.iter().find(|it| it.certificate == serving.signer);
                prop_assert!(trusted.is_some_and(|it| it.not_after > now));
                prop_assert!(serving.not_after > now);
                let since = known[&serving.signer];
                prop_assert!(index == 0 || since == 0 || now - since >= DAY || serving.not_before - since >= DAY);
                now += pause * DAY;
            }
        }
    }
}
