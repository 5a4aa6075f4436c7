//! Keeps long computations from blocking other requests on the same runtime thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From this size on, decoding or encoding takes milliseconds.
const OFFLOAD_THRESHOLD_BYTES: usize = 64 << 10;

/// Runs work on an input of `size` bytes. For large inputs the runtime moves its other tasks to
/// another thread first.
pub(super) fn run_offloaded<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let others = || {
        Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    };
    if bytes >= OFFLOAD_THRESHOLD_BYTES && others() {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_keep_running() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move { sender.send(()) });
        tokio::spawn(async move { run_offloaded(OFFLOAD_THRESHOLD_BYTES, || receiver.recv()) })
            .await
            .unwrap()
            .unwrap();
        other.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn runs_inline_on_a_current_thread_runtime() {
        assert_eq!(run_offloaded(OFFLOAD_THRESHOLD_BYTES, || 1), 1);
        assert_eq!(run_offloaded(0, || 2), 2);
    }
}
