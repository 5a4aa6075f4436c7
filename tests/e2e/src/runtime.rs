//! The async runtime of tests that are plain `#[test]` functions.

use std::future::Future;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Runtime};

/// Runs a future to completion on the kit's runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// The only runtime behind [`block_on`]: clients created on it stay usable in later calls.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        #[expect(clippy::expect_used, reason = "no test can run without threads")]
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a tokio runtime")
    })
}
