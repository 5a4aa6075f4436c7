//! Work that takes long enough to hold up others.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From this many bytes on, reading or writing objects takes milliseconds.
const OFFLOAD_THRESHOLD_BYTES: usize = 64 << 10;

/// Does work over so many bytes. If they are many, the requests that share this thread go on on
/// another one meanwhile.
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
        let (tell, told) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move { tell.send(()) });
        tokio::spawn(async move { run_offloaded(OFFLOAD_THRESHOLD_BYTES, || told.recv()) })
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
