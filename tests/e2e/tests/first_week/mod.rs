//! What a new user does in the first week on plain hosts, and what it reports: a Debian machine with sshd and no
//! boot loader, and one with containerd. Both are booted once and shared by the checks.

mod containerd;
mod fixture;
mod logs;
mod on_change;
mod reboot;
mod refusals;
mod silence;
mod ssh_keys;

use fixture::FirstWeek;

#[test]
fn reports_are_true_on_plain_hosts() {
    let week = FirstWeek::start();
    refusals::what_a_host_cannot_do_is_refused_before_it_is_written(&week);
    ssh_keys::keys_go_where_sshd_reads_them(&week);
    containerd::mirrors_reach_containerd_without_a_cordon(&week);
    on_change::changes_reboot_only_where_they_must(&week);
    logs::the_journal_of_the_daemon_is_shown(&week);
    reboot::a_machine_reboots_once_when_asked(&week);
    silence::a_machine_that_is_silent_is_unavailable(&week);
}
