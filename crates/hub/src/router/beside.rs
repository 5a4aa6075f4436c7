//! Work that takes long enough to hold up others.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From this many bytes on, reading or writing objects takes milliseconds.
const LARGE: usize = 64 << 10;

/// Does work over so many bytes. If they are many, the requests that share this thread go on on
/// another one meanwhile.
pub(super) fn beside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let others = || {
        Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    };
    if bytes >= LARGE && others() { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on() {
        let (tell, told) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move { tell.send(()) });
        tokio::spawn(async move { beside(LARGE, || told.recv()) }).await.unwrap().unwrap();
        other.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn without_others_it_is_just_done() {
        assert_eq!(beside(LARGE, || 1), 1);
        assert_eq!(beside(0, || 2), 2);
    }
}
