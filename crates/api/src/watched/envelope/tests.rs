use bytes::BufMut;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::watched::{Name, Named, object};

fn closed(message: &impl Message) -> Vec<u8> {
    let raw = message.encode_to_vec().into();
    [MAGIC, &Unknown { raw }.encode_to_vec()].concat()
}

fn frame(type_: &str, message: &impl Message) -> Vec<u8> {
    let object = RawExtension {
        raw: closed(message).into(),
    };
    let event = WatchEvent {
        type_: type_.to_owned(),
        object,
    };
    let event = event.encode_to_vec();
    [
        &u32::try_from(event.len()).unwrap().to_be_bytes()[..],
        &event,
    ]
    .concat()
}

fn pod_called(name: &str) -> Named {
    Named {
        metadata: Some(Name {
            name: name.to_owned(),
            resource_version: "7".to_owned(),
            ..Name::default()
        }),
    }
}

#[test]
fn event_survives_any_split_of_the_stream() {
    let gone = Status {
        message: "too old".into(),
        reason: "Expired".into(),
        code: 410,
    };
    let stream = [
        frame("ADDED", &pod_called("a")),
        frame("MODIFIED", &pod_called("b")),
        frame("DELETED", &pod_called("c")),
        frame("BOOKMARK", &pod_called("")),
        frame("ERROR", &gone),
    ]
    .concat();
    for piece in [1, 3, 4, 7, 50, stream.len()] {
        let (mut buffer, mut got) = (BytesMut::new(), Vec::new());
        for part in stream.chunks(piece) {
            buffer.put_slice(part);
            while let Some(event) = event(&mut buffer).unwrap() {
                let named = |raw| {
                    object::<Pod>(raw)
                        .unwrap()
                        .metadata
                        .name
                        .unwrap_or_default()
                };
                got.push(match event {
                    Event::Applied(raw) => format!("+{}", named(raw)),
                    Event::Deleted(raw) => format!("-{}", named(raw)),
                    Event::Bookmark(raw) => format!("={}", named(raw)),
                    Event::Error(status) => format!("{} {}", status.code, status.message),
                });
            }
        }
        assert_eq!(got, ["+a", "+b", "-c", "=", "410 too old"], "{piece}");
        assert!(buffer.is_empty());
    }
}

#[test]
fn event_rejects_a_foreign_stream() {
    let mut long = BytesMut::from(&b"<html>, and more"[..]);
    let error = event(&mut long).unwrap_err().to_string();
    assert!(error.starts_with("an event of 1013478509 bytes"), "{error}");
    let error = list(Bytes::from_static(b"{}")).unwrap_err().to_string();
    assert!(error.contains("proxy"), "{error}");
}

#[test]
fn list_gives_other_objects_despite_a_malformed_one() {
    // The priority (field 25 of the spec) is a text; the label is no text.
    let (spec, labels) = ([0xca, 1, 1, b'x'], [0x5a, 6, 10, 0, 18, 2, 0xff, 0xff]);
    let mut bad = BytesMut::from(&pod_called("bad").encode_to_vec()[..]);
    bad.put_slice(&[0x12, 4]);
    bad.put_slice(&spec);
    let mut odd = BytesMut::from(&[0x0a, 13, 0x0a, 3][..]);
    odd.put_slice(b"odd");
    odd.put_slice(&labels[..8]);
    let good = pod_called("good").encode_to_vec();
    let page = List {
        metadata: ListMeta::default(),
        items: vec![bad.freeze(), odd.freeze(), good.into()],
    };
    let items = list(closed(&page).into()).unwrap().items;
    let got: Vec<Value> = items
        .into_iter()
        .map(|raw| match object::<Pod>(raw) {
            Ok(pod) => json!(pod.metadata.name),
            Err(bad) => json!([bad.metadata.name, bad.error]),
        })
        .collect();
    assert_eq!(got[0][0], "bad");
    assert!(got[0][1].to_string().contains("priority"), "{}", got[0]);
    assert_eq!(got[1][0], "odd");
    assert!(got[1][1].to_string().contains("labels"), "{}", got[1]);
    assert_eq!(got[2], "good");
}
