"""The words that products are made of: brands, categories, sizes, tags."""

from dataclasses import dataclass

_BRANDS = """
Moncler/몽클레르 STONE_ISLAND/스톤_아일랜드 BURBERRY/버버리 Max_Mara/막스마라
Vivienne_Westwood/비비안웨스트우드 GUCCI/구찌 PRADA/프라다 LOUIS_VUITTON/루이비통 CHANEL/샤넬 HERMES/에르메스
DIOR/디올 FENDI/펜디 CELINE/셀린느 BALENCIAGA/발렌시아가 LOEWE/로에베 BOTTEGA_VENETA/보테가_베네타
SAINT_LAURENT/생로랑 VALENTINO/발렌티노 GIVENCHY/지방시 VERSACE/베르사체 MIU_MIU/미우미우 CHLOE/끌로에
MARNI/마르니 JIL_SANDER/질샌더 THOM_BROWNE/톰브라운 AMI/아미 A.P.C./아페쎄 ACNE_STUDIOS/아크네_스튜디오
MAISON_MARGIELA/메종_마르지엘라 MAISON_KITSUNE/메종_키츠네 OFF-WHITE/오프화이트 PALM_ANGELS/팜엔젤스
KENZO/겐조 LANVIN/랑방 BALMAIN/발망 ETRO/에트로 MISSONI/미쏘니 MOSCHINO/모스키노 DSQUARED2/디스퀘어드2
DIESEL/디젤 GOLDEN_GOOSE/골든구스 ALEXANDER_MCQUEEN/알렉산더_맥퀸 STELLA_McCARTNEY/스텔라_매카트니
TORY_BURCH/토리버치 MICHAEL_KORS/마이클_코어스 COACH/코치 KATE_SPADE/케이트_스페이드 MARC_JACOBS/마크_제이콥스
LONGCHAMP/롱샴 MCM/엠씨엠 FERRAGAMO/페라가모 TOD'S/토즈 BALLY/발리 MULBERRY/멀버리 RIMOWA/리모와 TUMI/투미
MONTBLANC/몽블랑 CARTIER/까르띠에 TIFFANY/티파니 BVLGARI/불가리 OMEGA/오메가 TAG_HEUER/태그호이어
SWAROVSKI/스와로브스키 PANDORA/판도라 RAY-BAN/레이밴 GENTLE_MONSTER/젠틀몬스터 CANADA_GOOSE/캐나다구스
NOBIS/노비스 MOOSE_KNUCKLES/무스너클 PARAJUMPERS/파라점퍼스 HERNO/에르노 C.P._COMPANY/C.P._컴퍼니
RALPH_LAUREN/랄프로렌 LACOSTE/라코스테 BARBOUR/바버 SALOMON/살로몬 NIKE/나이키 ADIDAS/아디다스
"""

_LARGE = """
M:남성:15:의류 M:남성:16:가방 M:남성:17:슈즈 M:남성:18:액세서리 W:여성:15:의류 W:여성:16:가방 W:여성:17:슈즈
W:여성:18:액세서리 K:키즈:20:의류 K:키즈:21:슈즈 K:키즈:27:액세서리 L:라이프:24:테크 L:라이프:22:스포츠용품
"""

_MEDIUM = {
    "의류": "코트/자켓 탑 팬츠 니트 셔츠/블라우스 원피스",
    "가방": "숄더백 토트백 크로스백 클러치 백팩",
    "슈즈": "스니커즈 로퍼 부츠/워커 샌들 펌프스",
    "액세서리": "지갑 벨트 머플러/스카프 모자 선글라스 주얼리",
    "테크": "케이스 이어폰",
    "스포츠용품": "골프 캠핑",
}

_SMALL = {
    "코트/자켓": "자켓 코트 다운_자켓 점퍼",
    "탑": "티셔츠 맨투맨 후드",
    "팬츠": "데님 슬랙스 트레이닝",
    "니트": "스웨터 가디건",
    "지갑": "반지갑 장지갑 카드지갑",
    "스니커즈": "로우탑 하이탑",
    "숄더백": "체인백 호보백",
}


@dataclass(frozen=True, slots=True)
class Brand:
    """A brand as the marketplace spells it."""

    code: int
    name: str
    name_kr: str


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a category path."""

    code: str
    name: str


@dataclass(frozen=True, slots=True)
class CategoryPath:
    """Where a product is filed; the deepest level may be missing."""

    header: Level
    large: Level
    medium: Level
    small: Level | None


def _spaced(word: str) -> str:
    return word.replace("_", " ")


def _brands() -> tuple[Brand, ...]:
    pairs = (entry.split("/") for entry in _BRANDS.split())
    return tuple(Brand(25 + 9 * n, _spaced(name), _spaced(kr)) for n, (name, kr) in enumerate(pairs))


def _paths() -> tuple[CategoryPath, ...]:
    paths: list[CategoryPath] = []
    for entry in _LARGE.split():
        header_code, header_name, large_code, large_name = entry.split(":")
        header, large = Level(header_code, header_name), Level(large_code, large_name)
        for m, medium_name in enumerate(_MEDIUM[large_name].split(), 1):
            medium = Level(f"{large_code}r{m:02}", medium_name)
            paths.append(CategoryPath(header, large, medium, None))
            for s, small_name in enumerate(_SMALL.get(medium_name, "").split(), 1):
                paths.append(CategoryPath(header, large, medium, Level(f"{medium.code}r{s:02}", _spaced(small_name))))
    return tuple(paths)


BRANDS = _brands()
PATHS = _paths()
TAGS = ("무료배송", "국내배송", "해외배송", "쿠폰", "단독", "시즌오프", "당일발송", "리퍼브")
COLORS = ("블랙", "네이비", "그레이", "베이지", "화이트", "카멜", "뉴트럴", "버건디")
SIZES = ("US 4", "US 6", "US 8", "US 10", "US 12", "S", "M", "L", "XL", "36", "38", "40", "FREE")
COUNTRIES = ("이탈리아", "프랑스", "케냐", "루마니아", "포르투갈", "대한민국", "중국", "튀르키예", "")
CITIES = ("대구 중구", "서울 강남구", "부산 해운대구", "경기 성남시", "인천 연수구")
STATUSES = ("새상품", "새상품", "새상품", "중고상품", "리퍼상품")
STYLES = (
    "와펜 패치 반집업",
    "벨티드 롱",
    "ORB 하이랜드",
    "레지나 캐시미어",
    "로고 자수",
    'GG "마몽" 퀼팅',
    "체크 & 스트라이프",
    "🖤 리미티드",
)
KEYWORDS = ("반팔", "슬림", "치노팬츠", "후드집업", "롱코트", "캐시미어", "미니백", "카드지갑", "첼시부츠", "패딩")
IMAGE_COLORS = (
    "GRAY BLACK NAVY WHITE BEIGE BROWN BLUE GREEN KHAKI RED PINK YELLOW PURPLE ORANGE WINE".split()  # noqa: SIM905
)
