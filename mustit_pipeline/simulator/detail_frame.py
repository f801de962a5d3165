"""The modules of a detail that say nothing about the product: rendered once, with numbers spliced in."""

from functools import lru_cache
from typing import Any

import orjson

BADGE = "https://static-ux.mustit.co.kr/img/front/icon/seller/icon_seller_excellence.svg"
_MARK = 987_654_321


def _module(kind: str, data: Any) -> bytes:
    return orjson.dumps({"type": kind, "data": data})


MARGIN = _module("VerticalMargin", {"lineHeight": 10, "backgroundColor": "#FAFAFA"})
WIDE_MARGIN = _module("VerticalMargin", {"lineHeight": 24, "backgroundColor": "#ffffff"})
PROMOTIONS = _module(
    "PromotionBannerModule",
    [
        {
            "imageUrl": "https://image.mustit.co.kr/lib/upload/event/uploads/5f0c1f6f7e2d4a7a8f3b6a1f0d9c2e41.jpeg",
            "landingUrl": "https://m.mustit.co.kr/m/etc/event_view?number=308&click=product_detail",
        },
        {
            "imageUrl": "https://static-ux.mustit.co.kr/img/m/m_banner/middle_banner_ourpolicy_v2.jpg",
            "landingUrl": "https://m.web.mustit.co.kr/m/board/introduce_our_policies",
        },
    ],
)
SINGLE_PROMOTION = _module(
    "SinglePromotionBannerModule",
    {
        "title": "기획전 바로가기",
        "imageUrl": "https://image.mustit.co.kr/lib/upload/admin/banner/pdp/6b1f2c3d4e5f60718293a4b5c6d7e8f9.png",
        "landingUrl": "https://m.web.mustit.co.kr/v2/m/promotion/exhibition/3927",
    },
)


def login_banner(item_no: int) -> bytes:
    """An invitation to log in."""
    page = "https%3A%2F%2Fm.web.mustit.co.kr%2Fv2%2Fm%2Fproduct%2Fproduct_detail%2F"
    url = f"https://m.web.mustit.co.kr/m/member/login?redirect={page}{item_no}"
    return b'{"type":"NonMemberBannerModule","data":{"landingUrl":"%b"}}' % url.encode()


def recommendations(item_no: int, query: str) -> bytes:
    """Where the page would load its recommendations from."""
    return (
        b'{"type":"LazyComponent","data":{"params":{"eid":null,"uid":null,"adid":null,"os":null,"osVersion":null,'
        b'"model":null,"gender":null},"method":"GET","url":"/v1/ai-recommendation/moloco/item/%d?%b"}}'
        % (item_no, query.encode())
    )


def tabs(reviews: int) -> bytes:
    """The page's tabs with their counts."""
    return (
        '{"type":"TabListModule","data":[{"type":"DETAIL","title":"상세정보"},'
        f'{{"type":"REVIEW","title":"리뷰","count":{reviews}}},{{"type":"INQUIRY","title":"문의","count":0}}]}}'
    ).encode()


def seller_module(seller_no: int, call: int) -> bytes:
    """The seller's statistics, which are others on every call."""
    before, between, after = _seller_pieces(seller_no)
    return b"%b%d%b%d%b" % (before, 283_520 + call, between, 14_119 + call // 3, after)


@lru_cache(maxsize=1024)
def _seller_pieces(seller_no: int) -> tuple[bytes, bytes, bytes]:
    text = _module("SellerModule", _seller(seller_no))
    before, between, after = text.split(str(_MARK).encode())
    return before, between, after


def _seller(seller_no: int) -> dict[str, Any]:
    return {
        "title": "판매자정보",
        "sellerInfo": {
            "sellerNo": seller_no,
            "status": "ACTIVE",
            "idleRegDate": "2016-04-06T00:00:00Z",
            "idleFlag": "ZERO",
            "eventPoint": _MARK,
            "trustPoint": 3403,
            "regularCustomCnt": 0,
            "cntPointBad": 43,
            "cntPointNormal": 24871,
            "cntPointGood": 9573,
            "prodUpdateCnt": 0,
            "todayUpdateCnt": 0,
            "prodRenewableCnt": 0,
            "prodInsertExcept": 0,
            "bestSellerExp": "",
            "naverDiscountExp": 0,
            "naverDiscountExpYn": True,
            "appDiscountExp": 0,
            "appDiscountExpYn": True,
            "sellerDiscountExp": 0,
            "prodBannerYn": False,
            "stockCheckYn": "NO",
            "quickYn": False,
            "reservDelivYn": False,
            "reservDelivProdCnt": 1,
            "reservDelivOrdCnt": 130,
            "holdSettlementYn": False,
            "holdSettlementDate": None,
            "holdSettlementAdmId": None,
            "holdSettlementExYn": False,
            "couponDiscountYn": True,
            "partnershipMallTargetYn": False,
            "prodRegLimit": 30000,
        },
        "sellerTopPercentile": 5,
        "sellerReviewSummary": {
            "reviewCount": _MARK,
            "reviewTotalAvg": 4.8303,
            "satisfactionScore": 87,
            "sizeReviewCnt": 0,
            "satisfactions": [
                _satisfaction("DELIVERY", (52, 0), (2784, 21), (10671, 79)),
                _satisfaction("PACKING", (324, 2), (3922, 29), (9261, 69)),
                _satisfaction("PRICE", (2243, 17), (10553, 78), (711, 5)),
            ],
        },
        "sellerBadgeUrl": BADGE,
    }


def _satisfaction(kind: str, *scores: tuple[int, int]) -> dict[str, Any]:
    return {
        "satisfactionType": kind,
        "satisfactions": [
            {"satisfactionName": f"{kind}_{n}", "satisfactionScore": score, "satisfactionPercent": percent}
            for n, (score, percent) in enumerate(scores)
        ],
    }
