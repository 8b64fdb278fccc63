//! Kubeconfigs in several files, and proxies between the binary and the API server.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::{api_server::ApiServer, bindings, text};

/// A proxy that takes every connection to the server of a test.
struct Proxy {
    address: String,
    /// The hosts and ports that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(server: &ApiServer, accept: fn(&mut TcpStream) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = server.url().replace("http://", "");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let known = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut near = stream.unwrap();
                known.lock().unwrap().push(accept(&mut near));
                let far = TcpStream::connect(&to).unwrap();
                let (back, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let mut to_far = far;
                std::thread::spawn(move || std::io::copy(&mut { near }, &mut to_far));
                std::thread::spawn(move || {
                    _ = std::io::copy(&mut { back }, &mut to_near);
                    _ = to_near.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn read<const N: usize>(stream: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn connect(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read::<1>(stream));
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let head = text(&head);
    let mut words = head.split(' ');
    assert_eq!(words.next(), Some("CONNECT"));
    words.next().unwrap().to_owned()
}

fn socks5(stream: &mut TcpStream) -> String {
    let [5, methods] = read::<2>(stream) else {
        panic!("not SOCKS5");
    };
    (0..methods).for_each(|_| _ = read::<1>(stream));
    stream.write_all(&[5, 0]).unwrap();
    let [5, 1, 0, 3, length] = read::<5>(stream) else {
        panic!("no connection to a name");
    };
    let mut name = vec![0; length.into()];
    stream.read_exact(&mut name).unwrap();
    let port = u16::from_be_bytes(read(stream));
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    format!("{}:{port}", text(&name))
}

fn kubeconfig(cluster: &Value) -> Value {
    json!({
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "current-context": "c",
    })
}

fn get(kubeconfigs: &[&Path], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tautline"))
        .args(["get", "bindings", "-n", "shop"])
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("KUBECONFIG", std::env::join_paths(kubeconfigs).unwrap())
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn proxies_are_those_of_the_kubeconfig_and_the_environment() {
    let server = ApiServer::start(|_| bindings(&[], ""));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    let http = Proxy::start(&server, connect);
    let socks = Proxy::start(&server, socks5);
    let address = "http://api.example:8080";
    for (proxy, url) in [
        (&http, format!("http://{}", http.address)),
        (&socks, format!("socks5://{}", socks.address)),
    ] {
        let cluster = json!({"server": address, "proxy-url": url});
        std::fs::write(&file, kubeconfig(&cluster).to_string()).unwrap();
        // NO_PROXY is of the environment's proxy.
        let out = get(&[&file], &[("NO_PROXY", "*")]);
        assert!(out.status.success(), "{url}: {}", text(&out.stderr));
        assert_eq!(proxy.asked()[0], "api.example:8080");

        let before = proxy.asked().len();
        std::fs::write(&file, kubeconfig(&json!({"server": address})).to_string()).unwrap();
        let out = get(
            &[&file],
            &[("HTTP_PROXY", &url), ("NO_PROXY", "other.example,")],
        );
        assert!(out.status.success(), "{url}: {}", text(&out.stderr));
        assert!(proxy.asked().len() > before, "{url}");

        let local = json!({"server": server.url()});
        std::fs::write(&file, kubeconfig(&local).to_string()).unwrap();
        let before = proxy.asked().len();
        let out = get(&[&file], &[("HTTP_PROXY", &url)]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert_eq!(proxy.asked().len(), before, "this machine needs no proxy");
    }
}

#[test]
fn files_are_merged_and_servers_completed_as_kubectl_does() {
    let server = ApiServer::start(|_| bindings(&[], ""));
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let empty = json!({"current-context": "", "contexts": null, "clusters": []});
    std::fs::write(&first, empty.to_string()).unwrap();
    // A server without a scheme made the client library panic.
    let bare = server.url().replace("http://", "");
    let file = kubeconfig(&json!({"server": bare})).to_string();
    std::fs::write(&second, format!("\u{feff}{file}")).unwrap();
    let missing = dir.path().join("missing");
    let out = get(&[&missing, &first, &second], &[]);
    assert!(out.status.success(), "{}", text(&out.stderr));

    for (file, expected) in [
        (&missing, "missing named by KUBECONFIG does not exist"),
        (
            &first,
            "no cluster: neither a kubeconfig nor a pod's account was found",
        ),
    ] {
        let out = get(&[file], &[]);
        let error = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{error}");
        assert!(
            error.contains(expected) && error.contains("--kubeconfig"),
            "{error}"
        );
    }
}
