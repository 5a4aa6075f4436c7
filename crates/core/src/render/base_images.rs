//! The default OS image of a pool, before MachineConfigs override it: from the pool's annotation,
//! else from its stream, else from the ControllerConfig.
//!
//! A custom pool without its own annotation or stream follows the pool `worker`.

use crate::api::names::annotation::machinist::OS_IMAGE;
use crate::api::names::object::{POOL_ARBITER, POOL_MASTER, POOL_WORKER};
use crate::api::{ControllerConfig, MachineConfigPool, OSImageStream, OSImageStreamSet};
use crate::os::image_ref::reference_problem;

use super::error::RenderError;

/// The sources of default images.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageSources<'a> {
    /// The ControllerConfig, if there is one.
    pub controller_config: Option<&'a ControllerConfig>,
    /// The OSImageStream `cluster`, if there is one.
    pub streams: Option<&'a OSImageStream>,
    /// The pool `worker`, which custom pools follow.
    pub worker: Option<&'a MachineConfigPool>,
}

impl<'a> From<Option<&'a ControllerConfig>> for ImageSources<'a> {
    fn from(controller_config: Option<&'a ControllerConfig>) -> Self {
        Self { controller_config, ..Self::default() }
    }
}

impl<'a> ImageSources<'a> {
    /// Finds the pool `worker` among all pools.
    #[must_use]
    pub fn with_worker_pool(
        mut self,
        pools: impl IntoIterator<Item = &'a MachineConfigPool>,
    ) -> Self {
        self.worker = pools.into_iter().find(|pool| name_of(pool) == POOL_WORKER);
        self
    }

    /// The pool whose annotation and stream apply to a pool without its own.
    fn followed_pool(&self, pool: &MachineConfigPool) -> Option<&'a MachineConfigPool> {
        let custom = ![POOL_MASTER, POOL_WORKER, POOL_ARBITER].contains(&name_of(pool));
        self.worker.filter(|_| custom)
    }
}

/// The default images of a pool, and where they come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseImages {
    /// The image of the stream, else of the ControllerConfig.
    pub system_image: String,
    /// The extensions image that belongs to it.
    pub extensions: String,
    /// The stream of both images.
    pub stream: Option<String>,
    /// The image of an annotation, which replaces `system_image`.
    pub annotated: Option<AnnotatedImage>,
}

/// An image that an administrator set in a pool's annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnotatedImage {
    /// The pool with the annotation: the pool itself or the one it follows.
    pub pool: String,
    /// The image.
    pub image: String,
}

impl BaseImages {
    /// The default images of a pool.
    pub(super) fn for_pool(
        pool: &MachineConfigPool,
        system: &ImageSources<'_>,
    ) -> Result<Self, RenderError> {
        if let (Some(_), Some(stream)) = (annotation(pool), own_stream(pool)) {
            let (pool, stream) = (name_of(pool).to_owned(), stream.to_owned());
            return Err(RenderError::AnnotationAndStream { pool, stream });
        }
        let annotated = annotated(pool, system)?;
        Ok(match stream(pool, system)? {
            Some(stream) => Self {
                system_image: stream.os_image.clone(),
                extensions: stream.os_extensions_image.clone(),
                stream: Some(stream.name.clone()),
                annotated,
            },
            None => {
                let cc = system.controller_config.map(|cc| &cc.spec);
                let text = |value: Option<&String>| value.cloned().unwrap_or_default();
                Self {
                    system_image: text(cc.and_then(|cc| cc.base_os_container_image.as_ref())),
                    extensions: text(
                        cc.and_then(|cc| cc.base_os_extensions_container_image.as_ref()),
                    ),
                    stream: None,
                    annotated,
                }
            }
        })
    }

    /// The image that machines get if no MachineConfig sets one.
    #[must_use]
    pub fn image(&self) -> &str {
        self.annotated.as_ref().map_or(&self.system_image, |annotated| &annotated.image)
    }
}

/// The image of the pool's annotation, or of the pool it follows. A pool's own annotation or stream
/// takes precedence over the followed pool.
fn annotated(
    pool: &MachineConfigPool,
    system: &ImageSources<'_>,
) -> Result<Option<AnnotatedImage>, RenderError> {
    let own = annotation(pool).map(|image| (pool, image));
    let found = own.or_else(|| {
        let followed = system.followed_pool(pool).filter(|_| own_stream(pool).is_none())?;
        annotation(followed).map(|image| (followed, image))
    });
    let Some((pool, image)) = found else { return Ok(None) };
    let pool = name_of(pool).to_owned();
    match reference_problem(image) {
        None => Ok(Some(AnnotatedImage { pool, image: image.to_owned() })),
        Some(reason) => {
            Err(RenderError::InvalidImageAnnotation { pool, image: image.to_owned(), reason })
        }
    }
}

/// The stream of a pool: its own, else that of the followed pool, else the default.
fn stream<'a>(
    pool: &'a MachineConfigPool,
    system: &ImageSources<'a>,
) -> Result<Option<&'a OSImageStreamSet>, RenderError> {
    let wanted = own_stream(pool).or_else(|| own_stream(system.followed_pool(pool)?));
    let pool = || name_of(pool).to_owned();
    let status = system.streams.and_then(|streams| streams.status.as_ref());
    let there = status.and_then(|status| status.available_streams.as_deref()).unwrap_or_default();
    let wanted = match (wanted, system.streams) {
        (None, None) => return Ok(None),
        // The status is not written yet. That is an error only for a pool that names a stream.
        (None, Some(_)) if there.is_empty() => return Ok(None),
        (None, Some(streams)) => default_stream(streams, there),
        (Some(_), None) => return Err(RenderError::NoStreams { pool: pool() }),
        (Some(wanted), Some(_)) => wanted,
    };
    match there.iter().find(|stream| stream.name == wanted) {
        Some(stream) => Ok(Some(stream)),
        None => Err(RenderError::UnknownStream {
            pool: pool(),
            stream: wanted.to_owned(),
            there: there.iter().map(|stream| stream.name.clone()).collect(),
        }),
    }
}

/// The stream of pools that name none. `spec.defaultStream` applies at once if the stream exists: no
/// other controller copies it to the status.
fn default_stream<'a>(streams: &'a OSImageStream, there: &[OSImageStreamSet]) -> &'a str {
    let wish = streams.spec.default_stream.as_deref();
    let wish = wish.filter(|wish| there.iter().any(|stream| stream.name == *wish));
    let in_use = || streams.status.as_ref()?.default_stream.as_deref();
    wish.or_else(in_use).unwrap_or_default()
}

fn own_stream(pool: &MachineConfigPool) -> Option<&str> {
    let stream = pool.spec.os_image_stream.as_ref()?;
    Some(stream.name.as_str()).filter(|name| !name.is_empty())
}

fn annotation(pool: &MachineConfigPool) -> Option<&str> {
    pool.metadata.annotations.as_ref()?.get(OS_IMAGE).map(String::as_str)
}

fn name_of(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}
