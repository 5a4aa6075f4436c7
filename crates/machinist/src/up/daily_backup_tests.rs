//! The daily backup with a hub in memory. The time is a value.
use age::x25519;
use machinist_hub::HubConfig;
use machinist_hub::audit::AuditLog;
use machinist_hub::store::{Store, StoreOptions};

use super::*;
use crate::backup::encryption::DecryptionKeys;

const DAY: i64 = 24 * 3600;
const NOW: i64 = 1_800_000_000;

async fn backups(directory: &Path, keep: usize, encryption: Encryption) -> DailyBackups {
    let audit = AuditLog::to_file(&directory.join("audit.log")).unwrap();
    let config = HubConfig { audit, ..HubConfig::default() };
    let hub = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap();
    let target = directory.join("backups");
    fs::create_dir_all(&target).unwrap();
    DailyBackups {
        hub,
        data: DataDirectory::at(directory.join("data")),
        config: DailyBackupConfig {
            directory: target,
            keep: NonZeroUsize::new(keep).unwrap(),
            encryption,
            include_pki: false,
        },
        metrics: BackupMetrics::default(),
        last_failure: None,
    }
}

/// The failure that `/readyz` shows.
fn reported(backups: &DailyBackups) -> Option<String> {
    backups.hub.failures().lines().pop()
}

fn times(backups: &DailyBackups) -> Vec<i64> {
    let mut times: Vec<i64> = existing_backups(&backups.config.directory)
        .unwrap()
        .iter()
        .map(|backup| (backup.time - NOW) / DAY)
        .collect();
    times.sort_unstable();
    times
}

#[tokio::test]
async fn a_backup_is_taken_each_day_and_old_ones_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut daily = backups(directory.path(), 2, Encryption::None).await;
    let other = daily.config.directory.join("other.backup");
    fs::write(&other, "not ours").unwrap();
    let partial = daily.config.directory.join("hub-20200101T000000Z.backup.part");
    fs::write(&partial, "half").unwrap();
    daily.run_once(NOW).await;
    assert_eq!(times(&daily), [0]);
    assert!(!partial.exists());
    // Within the day, also after a restart, nothing happens.
    daily.run_once(NOW + 60).await;
    let mut restarted = backups(directory.path(), 2, Encryption::None).await;
    let wait = restarted.run_once(NOW + DAY - 10).await;
    assert_eq!((times(&restarted), wait.as_secs()), (vec![0], 10));
    assert_eq!(restarted.metrics.last_success(), NOW);
    for day in 1..4 {
        restarted.run_once(NOW + day * DAY).await;
    }
    assert_eq!(times(&restarted), [2, 3]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "not ours");
    for name in file_names(&restarted.config.directory).unwrap() {
        let path = restarted.config.directory.join(&name);
        if ExistingBackup::parse(&name).is_some() {
            file::verify(&path, &DecryptionKeys::None).unwrap();
        }
    }
    let audit = fs::read_to_string(directory.path().join("audit.log")).unwrap();
    assert_eq!(audit.matches("machinist:daily-backup").count(), 4, "{audit}");
}

#[tokio::test]
async fn recipients_decrypt_it() {
    let directory = tempfile::tempdir().unwrap();
    let identity = x25519::Identity::generate();
    let encryption = Encryption::Recipients(vec![identity.to_public()]);
    let mut daily = backups(directory.path(), 1, encryption).await;
    daily.run_once(NOW).await;
    let path = daily.config.directory.join("hub-20270115T080000Z.backup.age");
    let keys = DecryptionKeys::Identities(vec![identity]);
    let verified = file::verify(&path, &keys).unwrap();
    assert!(verified.contents.objects > 0 && verified.ca.is_none());
}

#[tokio::test]
async fn a_failure_is_counted_logged_once_and_deletes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut daily = backups(directory.path(), 1, Encryption::None).await;
    daily.run_once(NOW).await;
    // The CA cannot be read.
    daily.config.include_pki = true;
    daily.run_once(NOW + DAY).await;
    let failure = reported(&daily).unwrap();
    assert!(failure.contains("ca.crt"), "{failure}");
    assert_eq!((times(&daily), daily.metrics.failures()), (vec![0], 1));
    daily.run_once(NOW + DAY + 60).await;
    assert_eq!(daily.metrics.failures(), 1, "it is tried again after an hour");
    daily.run_once(NOW + DAY + 3600).await;
    assert_eq!((daily.metrics.failures(), reported(&daily)), (2, Some(failure)));
    daily.config.include_pki = false;
    daily.run_once(NOW + DAY + 7200).await;
    assert_eq!((times(&daily), reported(&daily)), (vec![1], None));
    // The directory is gone, as a disk that is not mounted.
    fs::remove_dir_all(&daily.config.directory).unwrap();
    daily.run_once(NOW + 3 * DAY).await;
    assert!(reported(&daily).unwrap().contains("cannot read the directory of backups"));
    daily.run_once(NOW + 3 * DAY + 60).await;
    assert_eq!(daily.metrics.failures(), 3);
    assert_eq!(daily.metrics.last_success(), NOW + DAY + 7200);
}

#[test]
fn a_backup_leaves_space_for_the_hub() {
    let directory = Path::new("/backups");
    check_free_space(directory, 1000, 65 << 20).unwrap();
    let error = check_free_space(directory, 100 << 20, 100 << 20).unwrap_err().to_string();
    assert!(error.contains("/backups") && error.contains("174 MiB"), "{error}");
}
