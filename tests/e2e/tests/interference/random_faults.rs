//! Random faults and random changes. While a fault lasts, the machine has the new config or says truly why not; without
//! it the machine converges, and nothing is left over.
//!
//! `MACHINIST_INTERFERENCE_ROUNDS` sets the number of rounds, `MACHINIST_INTERFERENCE_SEED` repeats them.

use super::fixture::{InterferenceFixture, NODE};
use crate::hub_support::RandomGenerator;
use machinist_e2e::environment::env_number;
use machinist_e2e::wait_for;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

const ROUNDS: u64 = 4;
const PATHS: [&str; 3] = ["/etc/one", "/etc/two", "/etc/new"];

/// What happens to a machine.
struct Fault {
    name: &'static str,
    /// Brings it about at the path `$p`.
    script: &'static str,
    /// Ends it.
    remedy: &'static str,
    /// Whether the daemon has to name the path if it cannot go on.
    obstructs: bool,
}

const fn fault(
    name: &'static str,
    script: &'static str,
    remedy: &'static str,
    obstructs: bool,
) -> Fault {
    Fault { name, script, remedy, obstructs }
}

const FAULTS: [Fault; 9] = [
    fault("nothing", ":", ":", false),
    fault("immutable", "test -f $p || echo x >$p; chattr +i $p", "chattr -i $p", true),
    fault("pipe", "rm -f $p; mkfifo $p", "test ! -p $p || rm $p", true),
    fault("directory", "rm -f $p; mkdir $p", "test ! -d $p || rmdir $p", true),
    fault("mount", "test -f $p || echo x >$p; mount --bind /etc/passwd $p", "umount $p", true),
    fault("edited", "echo drifted >$p", ":", false),
    fault("deleted", "rm -f $p", ":", false),
    fault("killed", "systemctl kill -s KILL machinist-daemon.service", ":", false),
    fault("frozen", "systemctl kill -s STOP machinist-daemon.service", THAW, false),
];
const THAW: &str = "systemctl kill -s CONT machinist-daemon.service";

struct RandomRounds {
    fixture: InterferenceFixture,
    random: RandomGenerator,
    /// The files of the config that the machine should have.
    expected: BTreeMap<&'static str, String>,
}

impl RandomRounds {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.random.below(from.len() as u64)).unwrap()]
    }

    fn round(&mut self, round: u64) {
        let fault = &FAULTS[usize::try_from(self.random.below(FAULTS.len() as u64)).unwrap()];
        let path = self.pick(&PATHS);
        let cuts_power = self.random.below(8) == 0;
        let config = format!("r{round}");
        self.expected = BTreeMap::new();
        for path in PATHS {
            if self.random.below(4) > 0 {
                self.expected.insert(path, format!("{round} {}\n", self.random.below(1000)));
            }
        }
        let what = format!("round {round}: {} at {path}, power cut {cuts_power}", fault.name);
        eprintln!("{what}");
        let run = |script: &str| self.fixture.machine.sh(&format!("p={path}; {script}")).unwrap();
        run(fault.script);
        let files: Vec<(&str, &str)> =
            self.expected.iter().map(|(path, text)| (*path, text.as_str())).collect();
        self.fixture.desire(&config, &files);
        std::thread::sleep(Duration::from_millis(self.random.below(1500)));
        if cuts_power {
            self.fixture.machine.power_cut().unwrap();
            self.fixture.machine.power_on().unwrap();
        }
        let run = |script: &str| self.fixture.machine.sh(&format!("p={path}; {script}")).unwrap();
        if fault.obstructs && !cuts_power {
            self.assert_done_or_honest(&config, path, &what);
        }
        // A mount or a frozen process does not survive a power cut.
        let remedy =
            if cuts_power { format!("{} || true", fault.remedy) } else { fault.remedy.to_owned() };
        run(&remedy);
        if !self.expected.contains_key(path) {
            // Nobody manages what the fault left there.
            self.fixture.hub.wait_done(&self.fixture.machine, &config);
            run("rm -rf $p");
        }
        self.assert_converged(&config, &what);
    }

    /// The machine has the config, or is degraded with a reason that names the path.
    fn assert_done_or_honest(&self, config: &str, path: &str, what: &str) {
        let hub = &self.fixture.hub;
        let waited = wait_for("the machine to be done or degraded", || {
            let state = hub.annotation(NODE, "state");
            let reason = hub.annotation(NODE, "reason");
            let is_done = state == "Done" && hub.annotation(NODE, "currentConfig") == config;
            anyhow::ensure!(
                is_done || state == "Degraded" && reason.contains(path),
                "{state}: {reason}"
            );
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{what}: {error:#}\n{}", self.fixture.log());
        }
    }

    fn assert_converged(&self, config: &str, what: &str) {
        let (fixture, machine) = (&self.fixture, &self.fixture.machine);
        fixture.hub.wait_done(machine, config);
        let waited = wait_for("the files to be those of the config", || {
            for path in PATHS {
                let found = machine.sh(&format!("test ! -e {path} || cat {path}"))?;
                let expected = self.expected.get(path).cloned().unwrap_or_default();
                anyhow::ensure!(found == expected, "{path}: {found:?} instead of {expected:?}");
            }
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{what}: {error:#}\n{}", fixture.log());
        }
        let left = machine.sh("find /etc -name '.machinist*' -o -name '*.machinist-*'").unwrap();
        assert_eq!(left, "", "{what}: left over");
        let active = machine.sh("systemctl is-active machinist-daemon.service").unwrap();
        assert_eq!(active, "active\n", "{what}");
    }
}

#[test]
fn a_machine_converges_after_every_fault() {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = env_number("MACHINIST_INTERFERENCE_SEED", now | 1);
    let rounds = env_number("MACHINIST_INTERFERENCE_ROUNDS", ROUNDS);
    eprintln!("MACHINIST_INTERFERENCE_SEED={seed}");
    let fixture = InterferenceFixture::start(None);
    fixture.hub.annotate(NODE, &[("machinist.dev/drift", "heal")]);
    let mut rounds_of =
        RandomRounds { fixture, random: RandomGenerator(seed), expected: BTreeMap::new() };
    for round in 0..rounds {
        rounds_of.round(round);
    }
}
