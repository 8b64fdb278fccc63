//! Addresses where no provider answers.

use std::time::Duration;

use tautline_conformance::{Config, Error, run};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tonic::transport::{Certificate, ClientTlsConfig};

/// Accepts connections, and answers nothing but `answer`.
async fn server(answer: &'static [u8]) -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if !answer.is_empty() {
                _ = stream.read(&mut [0; 64]).await;
                _ = stream.write_all(answer).await;
            }
            open.push(stream);
        }
    });
    Config {
        patience: Duration::from_millis(500),
        ..Config::new(address.to_string(), "spread")
    }
}

#[tokio::test]
async fn silent_port_is_an_error_in_time() {
    let silent = run(server(b"").await).await.unwrap_err().to_string();
    assert!(silent.contains("no answer within 500ms"), "{silent}");

    let ca = rcgen::generate_simple_self_signed(["ca".into()]).unwrap();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca.cert.pem()));
    let silent = Config {
        tls: Some(tls),
        ..server(b"").await
    };
    let silent = run(silent).await.unwrap_err().to_string();
    assert!(silent.contains("no TLS handshake within 500ms"), "{silent}");
}

#[tokio::test]
async fn server_of_another_protocol_is_named_as_such() {
    let answers: [&[u8]; 2] = [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        // A TLS alert.
        b"\x15\x03\x03\x00\x02\x02\x0a",
    ];
    for answer in answers {
        let error = run(server(answer).await).await.unwrap_err();
        assert!(matches!(error, Error::NoGrpc { .. }), "{error}");
        assert!(error.to_string().contains("--provider-ca"), "{error}");
    }
}
