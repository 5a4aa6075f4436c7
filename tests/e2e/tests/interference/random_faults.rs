//! Random faults and random changes. While a fault lasts, the machine has the new config or says truly why not; without
//! it the machine converges, and nothing is left over.
//!
//! `MACHINIST_INTERFERENCE_ROUNDS` sets the number of rounds, `MACHINIST_INTERFERENCE_SEED` repeats them.

use super::fixture::{InterferenceFixture, NODE};
use crate::hub_support::RandomGenerator;
use machinist_e2e::environment::env_number;
use machinist_e2e::wait_for;
use std::collections::{BTreeMap, BTreeSet};
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

const FAULTS: [Fault; 15] = [
    fault("nothing", ":", ":", false),
    fault("immutable", "test -f $p || echo x >$p; chattr +i $p", "chattr -i $p", true),
    fault("pipe", "mkfifo $p.pipe; mv -fT $p.pipe $p", "test ! -p $p || rm $p", true),
    fault("directory", MAKE_DIRECTORY, "test ! -d $p || rmdir $p", true),
    fault("mount", "test -f $p || echo x >$p; mount --bind /etc/passwd $p", "umount $p", true),
    fault("edited", "echo drifted >$p", ":", false),
    fault("deleted", "rm -f $p", ":", false),
    fault("killed", "systemctl kill -s KILL machinist-daemon.service", ":", false),
    fault("few files", FEW_FILES, MORE_FILES, false),
    fault(
        "full disk",
        "dd if=/dev/zero of=/var/fill bs=256k 2>/dev/null || true",
        "rm -f /var/fill",
        false,
    ),
    fault(
        "read-only",
        "mount --bind /etc /etc; mount -o remount,bind,ro /etc",
        "umount -l /etc",
        false,
    ),
    fault(
        "no tmp",
        "umount -l /tmp 2>/dev/null || true; rm -rf /tmp",
        "mkdir -p -m 1777 /tmp",
        false,
    ),
    fault("reloads", RELOADS, "systemctl stop reloads.service 2>/dev/null || true", false),
    fault("edited again", EDITS, "systemctl stop edits.service 2>/dev/null || true", false),
    fault("frozen", "systemctl kill -s STOP machinist-daemon.service", THAW, false),
];
const THAW: &str = "systemctl kill -s CONT machinist-daemon.service";

/// The daemon may heal the file in between.
const MAKE_DIRECTORY: &str =
    "for i in $(seq 100); do rm -f $p; mkdir $p 2>/dev/null && exit; done; mkdir $p";
/// Nothing can be opened any more.
const FEW_FILES: &str =
    "prlimit --pid $(systemctl show -P MainPID machinist-daemon.service) --nofile=8:";
const MORE_FILES: &str =
    "prlimit --pid $(systemctl show -P MainPID machinist-daemon.service) --nofile=1024:";
const RELOADS: &str = "systemd-run -q --collect --unit=reloads sh -c \
    'for i in $(seq 100); do systemctl daemon-reload; sleep 0.02; done'";
/// Shorter than it takes for a path to be fought over.
const EDITS: &str = "systemd-run -q --collect --unit=edits sh -c \
    'for i in $(seq 30); do echo edited >$1; sleep 0.05; done' sh $p";

struct RandomRounds {
    fixture: InterferenceFixture,
    random: RandomGenerator,
    /// The files of the config that the machine should have.
    expected: BTreeMap<&'static str, String>,
    /// The files of the last config that the machine had.
    previous: (String, BTreeMap<&'static str, String>),
    /// Paths that a fault may have written while no config managed them: a config that manages one keeps what it finds, and
    /// the next one without the path restores it.
    written_unmanaged: BTreeSet<&'static str>,
}

/// What faults write.
const FAULT_CONTENTS: [&str; 4] = ["", "drifted\n", "x\n", "edited\n"];

impl RandomRounds {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.random.below(from.len() as u64)).unwrap()]
    }

    fn round(&mut self, round: u64) {
        let fault = &FAULTS[usize::try_from(self.random.below(FAULTS.len() as u64)).unwrap()];
        let path = self.pick(&PATHS);
        let cuts_power = self.random.below(8) == 0;
        let config = format!("r{round}");
        let previous = std::mem::take(&mut self.expected);
        if !previous.contains_key(path) {
            self.written_unmanaged.insert(path);
        }
        if round > 0 {
            self.previous = (format!("r{}", round - 1), previous);
        }
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
        self.assert_other_paths(config, path, what);
    }

    /// The other paths are those of the config that the Node names, whatever holds up the one.
    fn assert_other_paths(&self, config: &str, path: &str, what: &str) {
        let (before, files_before) = &self.previous;
        let waited = wait_for("the other paths to be those of the current config", || {
            let current = self.fixture.hub.annotation(NODE, "currentConfig");
            let files = match current.as_str() {
                name if name == config => &self.expected,
                name if name == before => files_before,
                _ => return Ok(true),
            };
            for other in PATHS.into_iter().filter(|other| *other != path) {
                let found =
                    self.fixture.machine.sh(&format!("test ! -e {other} || cat {other}"))?;
                let expected = files.get(other);
                let is_expected = self.is_expected(other, expected, &found);
                anyhow::ensure!(is_expected, "{current}: {other}: {found:?}, {expected:?}");
            }
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{what}: {error:#}\n{}", self.fixture.log());
        }
    }

    fn is_expected(&self, path: &str, expected: Option<&String>, found: &str) -> bool {
        match expected {
            Some(expected) => found == expected,
            None if self.written_unmanaged.contains(path) => FAULT_CONTENTS.contains(&found),
            None => found.is_empty(),
        }
    }

    fn assert_converged(&mut self, config: &str, what: &str) {
        let (fixture, machine) = (&self.fixture, &self.fixture.machine);
        fixture.hub.wait_done(machine, config);
        let waited = wait_for("the files to be those of the config", || {
            for path in PATHS {
                let found = machine.sh(&format!("test ! -e {path} || cat {path}"))?;
                let expected = self.expected.get(path);
                let is_expected = self.is_expected(path, expected, &found);
                anyhow::ensure!(is_expected, "{path}: {found:?} instead of {expected:?}");
            }
            Ok(true)
        });
        if let Err(error) = waited {
            panic!("{what}: {error:#}\n{}", fixture.log());
        }
        let names = "-name '.machinist*' -o -name '*.machinist-*'";
        let left = machine.sh(&format!("find /etc /var/lib -xdev {names}")).unwrap();
        assert_eq!(left, "", "{what}: left over");
        let status = machine.exec(&["machinist", "daemon", "status"]).unwrap();
        assert_eq!(status.code, 0, "{what}: {status:?}");
        let active = machine.sh("systemctl is-active machinist-daemon.service").unwrap();
        assert_eq!(active, "active\n", "{what}");
        for path in PATHS.into_iter().filter(|path| !self.expected.contains_key(path)) {
            // Synced, or the next power cut brings it back.
            machine.sh(&format!("rm -f {path}; sync /etc")).unwrap();
            self.written_unmanaged.remove(path);
        }
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
    let mut rounds_of = RandomRounds {
        fixture,
        random: RandomGenerator(seed),
        expected: BTreeMap::new(),
        previous: Default::default(),
        written_unmanaged: BTreeSet::new(),
    };
    for round in 0..rounds {
        rounds_of.round(round);
    }
}
