//! The server's certificate and the CA that it is signed with: what has to be made next.
//!
//! A new CA is trusted before it is used: it is made, goes into the bundle that machines get, and only when machines have had
//! time to get it, the server's certificate is signed with it. The old one stays in the bundle until it ends.

/// A CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Its certificate as PEM.
    pub certificate: String,
    /// From when it is valid, in seconds since 1970.
    pub from: i64,
    /// Until when.
    pub to: i64,
}

/// A certificate in the bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// It, as PEM.
    pub certificate: String,
    /// Until when it is valid.
    pub to: i64,
}

/// The server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// Its names, sorted.
    pub names: Vec<String>,
    /// From when it is valid.
    pub from: i64,
    /// Until when.
    pub to: i64,
    /// The certificate of the CA that signed it.
    pub signer: String,
}

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The CA in use.
    pub current: Option<Signer>,
    /// The CA that comes after it.
    pub next: Option<Signer>,
    /// What machines trust.
    pub bundle: Vec<Trusted>,
    /// The server's certificate.
    pub serving: Option<Serving>,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The names of the server.
    pub names: Vec<String>,
    /// How many seconds machines have to know a new CA before it is used.
    pub overlap: i64,
    /// Whether somebody asked for a new CA.
    pub rotate: bool,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make the first CA.
    MakeSigner,
    /// Make the CA that comes after the one in use.
    MakeNext,
    /// Let machines trust these.
    Trust(Vec<String>),
    /// Use the next CA from now on.
    UseNext,
    /// Have the server's certificate signed by the CA in use.
    Sign,
}

/// The next step; none when all is well. Each is to be carried out before the next is asked for.
#[must_use]
pub fn next(state: &State, wanted: &Wanted, now: i64) -> Option<Step> {
    let Some(current) = &state.current else { return Some(Step::MakeSigner) };
    let trusted = trusted(state, now);
    if state.bundle.iter().map(|it| &it.certificate).ne(trusted.iter()) {
        return Some(Step::Trust(trusted));
    }
    match &state.next {
        None if wanted.rotate || is_old(current, now) => return Some(Step::MakeNext),
        // A CA that has ended helps nobody: the new one cannot come too early.
        Some(next) if now - next.from >= wanted.overlap || current.to <= now => {
            return Some(Step::UseNext);
        }
        _ => {}
    }
    match &state.serving {
        Some(serving) if is_good(serving, current, wanted, now) => None,
        _ => Some(Step::Sign),
    }
}

/// What belongs into the bundle: what is in it and has not ended, the CA in use, and the one after it.
fn trusted(state: &State, now: i64) -> Vec<String> {
    let signers = state.current.iter().chain(&state.next);
    let in_use: Vec<String> = signers.map(|signer| signer.certificate.clone()).collect();
    let others = state.bundle.iter().filter(|it| it.to > now).map(|it| it.certificate.clone());
    let mut all: Vec<String> = others.chain(in_use).collect();
    all.sort();
    all.dedup();
    all
}

/// Less than a fifth of its time is left.
fn is_old(signer: &Signer, now: i64) -> bool {
    (signer.to - now) * 5 < signer.to - signer.from
}

fn is_good(serving: &Serving, current: &Signer, wanted: &Wanted, now: i64) -> bool {
    let is_young = (serving.to - now) * 3 >= serving.to - serving.from;
    let has_names = wanted.names.iter().all(|name| serving.names.contains(name));
    is_young && has_names && serving.signer == current.certificate
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: i64 = 24 * 60 * 60;

    /// Carries a step out, as the shell does.
    fn perform(state: &mut State, step: Step, names: &[String], now: i64, count: &mut u32) {
        let mut signer = || {
            *count += 1;
            Some(Signer { certificate: format!("ca{count:04}"), from: now, to: now + 3650 * DAY })
        };
        match step {
            Step::MakeSigner => state.current = signer(),
            Step::MakeNext => state.next = signer(),
            Step::Trust(all) => {
                let end = |certificate: &String| {
                    let signers = state.current.iter().chain(&state.next);
                    let mut known = signers.map(|it| (&it.certificate, it.to));
                    let known = known.find(|(it, _)| *it == certificate).map(|(_, to)| to);
                    let before = state.bundle.iter().find(|it| it.certificate == *certificate);
                    known.or(before.map(|it| it.to)).unwrap_or(i64::MAX)
                };
                let bundle = all.into_iter().map(|it| Trusted { to: end(&it), certificate: it });
                state.bundle = bundle.collect();
            }
            Step::UseNext => state.current = state.next.take(),
            Step::Sign => {
                let signer = state.current.as_ref().unwrap().certificate.clone();
                let names = names.to_vec();
                state.serving = Some(Serving { names, from: now, to: now + 365 * DAY, signer });
            }
        }
    }

    fn settle(state: &mut State, wanted: &mut Wanted, now: i64, count: &mut u32) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(step) = next(state, wanted, now) {
            assert!(steps.len() < 10, "{steps:?}");
            // What was asked for is done.
            wanted.rotate &= step != Step::MakeNext;
            perform(state, step.clone(), &wanted.names, now, count);
            steps.push(step);
        }
        steps
    }

    #[test]
    fn from_nothing_to_a_certificate_and_no_further() {
        let (mut state, mut count) = (State::default(), 0);
        let mut wanted = Wanted { names: vec!["a".into()], overlap: DAY, rotate: false };
        let steps = settle(&mut state, &mut wanted, 0, &mut count);
        assert_eq!(steps, [Step::MakeSigner, Step::Trust(vec!["ca0001".into()]), Step::Sign]);
        assert_eq!(settle(&mut state, &mut wanted, DAY, &mut count), []);
        wanted.names = vec!["b".into()];
        assert_eq!(settle(&mut state, &mut wanted, DAY, &mut count), [Step::Sign]);
        assert_eq!(settle(&mut state, &mut wanted, 260 * DAY, &mut count), [Step::Sign]);
    }

    #[test]
    fn a_new_ca_is_trusted_a_day_before_it_is_used() {
        let (mut state, mut count) = (State::default(), 0);
        let mut wanted = Wanted { names: vec!["a".into()], overlap: DAY, rotate: false };
        settle(&mut state, &mut wanted, 0, &mut count);
        wanted.rotate = true;
        let both = vec!["ca0001".to_owned(), "ca0002".to_owned()];
        let steps = settle(&mut state, &mut wanted, 100, &mut count);
        assert_eq!(steps, [Step::MakeNext, Step::Trust(both)]);
        assert_eq!(settle(&mut state, &mut wanted, 100 + DAY - 1, &mut count), []);
        let steps = settle(&mut state, &mut wanted, 100 + DAY, &mut count);
        assert_eq!(steps, [Step::UseNext, Step::Sign]);
        assert_eq!(state.bundle.len(), 2, "machines that know only the old one are still served");
    }

    proptest! {
        /// Over years, at any moment: the server's certificate is signed by a CA that machines trust, and that they have known for
        /// as long as they should.
        #[test]
        fn machines_always_know_who_signed(days in proptest::collection::vec((1i64..400, any::<bool>()), 1..60)) {
            let (mut state, mut count, mut now) = (State::default(), 0, 0);
            let mut wanted = Wanted { names: vec!["a".into()], overlap: DAY, rotate: false };
            let mut known: std::collections::BTreeMap<String, i64> = [].into();
            for (index, (pause, rotate)) in days.into_iter().enumerate() {
                wanted.rotate |= rotate && state.next.is_none();
                settle(&mut state, &mut wanted, now, &mut count);
                for it in &state.bundle {
                    known.entry(it.certificate.clone()).or_insert(now);
                }
                let serving = state.serving.as_ref().unwrap();
                let trusted = state.bundle.iter().find(|it| it.certificate == serving.signer);
                prop_assert!(trusted.is_some_and(|it| it.to > now));
                prop_assert!(serving.to > now);
                let since = known[&serving.signer];
                prop_assert!(index == 0 || since == 0 || now - since >= DAY || serving.from - since >= DAY);
                now += pause * DAY;
            }
        }
    }
}
