"""Ask Fairlead's rate limit service about two calls of one interaction, as a gateway of one's own does.

python examples/limits.py --user ann [--service 127.0.0.1:7060]
"""

import argparse
import secrets

import grpc

from serving.envoy import ratelimit_pb2, ratelimit_pb2_grpc

INTERACTION = "x-fairlead-interaction"


def main() -> None:
    """Print what the service answers to each call, and what to send to the caller."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--service", default="127.0.0.1:7060")
    parser.add_argument("--user", required=True)
    args = parser.parse_args()
    interaction = secrets.token_hex(8)
    with grpc.insecure_channel(args.service) as channel:
        stub = ratelimit_pb2_grpc.RateLimitServiceStub(channel)
        for number in (1, 2):
            entries = [
                {"key": "user", "value": args.user.encode()},
                {"key": "interaction", "value": interaction.encode()},
            ]
            request = ratelimit_pb2.RateLimitRequest(domain="fairlead", descriptors=[{"entries": entries}])
            answer = stub.ShouldRateLimit(request, timeout=10, wait_for_ready=True)
            if answer.overall_code == ratelimit_pb2.RateLimitResponse.OVER_LIMIT:
                print(f"call {number} is refused: {answer.raw_body.decode()}")
                break
            print(f"call {number} is admitted; {answer.statuses[0].limit_remaining} calls remain")
            headers = {header.key: header.value for header in answer.response_headers_to_add}
            interaction = headers[INTERACTION]  # the caller sends it with the interaction's next call


if __name__ == "__main__":
    main()
