use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full, StreamBody};
use std::convert::Infallible;

fn pack(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// The body of a response as the client sees it, and how many bytes it has taken when it ends.
async fn read(
    packed: bool,
    body: &[u8],
    limit: u64,
    is_watch: bool,
) -> (Result<Vec<u8>, String>, usize) {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body)));
    if packed {
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    }
    let response = bound(response, ResponseLimit(limit), is_watch);
    assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    let (mut body, mut text, mut taken) = (response.into_body(), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let data = frame.into_data().unwrap();
                taken = taken.max(data.len());
                text.extend_from_slice(&data);
            }
            Err(error) => return (Err(error.to_string()), text.len()),
        }
    }
    (Ok(text), taken)
}

#[tokio::test]
async fn responses_arrive_unpacked() {
    let random: Vec<u8> =
        (0..300_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for text in [vec![], b"{}".to_vec(), vec![b' '; 3 << 20], random] {
        assert!(read(false, &text, 4 << 20, false).await.0.unwrap() == text);
        assert!(read(true, &pack(&text), 4 << 20, false).await.0.unwrap() == text);
    }
    let members = [pack(b"one "), pack(b"two")].concat();
    assert_eq!(read(true, &members, 100, false).await.0.unwrap(), b"one two");
}

#[tokio::test]
async fn a_bomb_is_an_error_before_it_has_taken_much() {
    let bomb = pack(&vec![0; 256 << 20]);
    assert!(bomb.len() < 300_000, "{}", bomb.len());
    let (text, taken) = read(true, &bomb, 8 << 20, false).await;
    assert!(text.unwrap_err().contains("more than 8 MiB"));
    assert!(taken <= 8 << 20, "{taken}");
    let (text, _) = read(false, &vec![b' '; (8 << 20) + 1], 8 << 20, false).await;
    assert!(text.unwrap_err().contains("more than 8 MiB"));
    assert!(read(false, &vec![b' '; 8 << 20], 8 << 20, false).await.0.is_ok());
}

#[tokio::test]
async fn a_piece_of_a_bomb_unpacks_to_a_few_megabytes() {
    let bomb = pack(&vec![0; 64 << 20]);
    let (text, largest) = read(true, &bomb, 1 << 30, false).await;
    assert_eq!(text.unwrap().len(), 64 << 20);
    assert!(largest <= 4 << 20, "{largest}");
}

#[tokio::test]
async fn members_without_end_that_unpack_to_nothing_are_an_error() {
    let empty = Bytes::from(pack(b"").repeat(100));
    let frames =
        futures::stream::repeat_with(move || Ok::<_, Infallible>(Frame::data(empty.clone())));
    let mut response = Response::new(StreamBody::new(frames));
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let error = bound(response, ResponseLimit(1 << 20), false).into_body().collect().await;
    assert!(error.unwrap_err().to_string().contains("more than 1 MiB"));
}

#[tokio::test]
async fn a_request_can_have_a_limit_of_its_own() {
    let large = || Full::new(Bytes::from(vec![b' '; 2 << 20]));
    let inner = tower::service_fn(move |_: Request<Body>| async move {
        Ok::<_, Infallible>(Response::new(large()))
    });
    let mut client = BoundedResponses { inner, limit: ResponseLimit(1 << 20) };
    let mut request = Request::get("/").body(Body::empty()).unwrap();
    assert!(client.call(request).await.unwrap().into_body().collect().await.is_err());
    request = Request::get("/").body(Body::empty()).unwrap();
    request.extensions_mut().insert(ResponseLimit::of_bytes(2 << 20));
    assert!(client.call(request).await.unwrap().into_body().collect().await.is_ok());
}

#[tokio::test]
async fn damaged_gzip_is_an_error() {
    let packed = pack(&[b'x'; 1000]);
    for damaged in [&packed[..packed.len() - 9], &packed[..4], b"plain text".as_slice()] {
        let error = read(true, damaged, 1 << 20, false).await.0.unwrap_err();
        assert!(error.contains("not gzip"), "{error}");
    }
}

#[tokio::test]
async fn each_event_of_a_watch_is_bounded() {
    let events = [vec![b'x'; 900], vec![b'y'; 900]].join(&b'\n').repeat(50);
    assert!(read(false, &[events.as_slice(), b"\n"].concat(), 2000, true).await.0.is_ok());
    let (text, _) = read(false, &vec![b'x'; 2 << 20], 1 << 20, true).await;
    assert!(text.unwrap_err().contains("more than 1 MiB"));
    // One event in many pieces.
    let piece = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 1000])));
    let body = StreamBody::new(futures::stream::repeat_with(piece));
    let response = bound(Response::new(body), ResponseLimit(1 << 20), true);
    assert!(response.into_body().collect().await.is_err());
}

#[test]
fn watches_are_known_by_their_query() {
    for (query, expected) in [
        ("watch=true", true),
        ("limit=1&watch=1&x=y", true),
        ("watch", true),
        ("watch=false", false),
        ("fieldSelector=watch%3Dtrue", false),
        ("", false),
    ] {
        assert_eq!(is_watch(query), expected, "{query}");
    }
}
